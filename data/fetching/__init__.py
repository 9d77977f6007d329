"""Data sets from their official addresses: download, check, find."""
