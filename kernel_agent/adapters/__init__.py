"""Our kernel under other programs' agents; each module needs the package that it is named for."""
