"""Image files: pictures of any size in folders, tables and records, read while they are used."""
