"""The parts of the report: what is asked, its tables, their files and the page."""
