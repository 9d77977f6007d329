"""Public data sets: their addresses, the download, and the files that it leaves."""
