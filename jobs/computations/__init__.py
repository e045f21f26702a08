"""Every computation, without HTTP: what is asked, what is answered, and how it is found."""
