# access: write
# The ways of a command that reads, for one that may write the folder that holds the store.
import os
import runpy

runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "read_store_read.py"), run_name="__main__")
