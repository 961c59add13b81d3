"""Several worker processes behind one port: started, fed with connections, and replaced."""
