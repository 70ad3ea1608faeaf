"""Report of a cluster: its queries, tables, their files, plots and page."""
