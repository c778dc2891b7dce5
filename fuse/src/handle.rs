//! Open files and directories.
