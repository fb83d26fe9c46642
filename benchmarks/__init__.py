"""What this project measures itself with: programs and published suites; see ``README.md``."""
