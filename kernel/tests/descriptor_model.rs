//! Descriptor tools, from JSON arguments to XML answers, against a slow and obvious model.

mod fd_to_file;
mod model;
mod read_fd;
mod search_fd;
