"""Attacks that meet the host without a cell: hostile servers, tables, files and traces."""
