"""Which role a member has, for a life: what is kept of it, who is asked, how it changes by hand."""
