//! gcsmount-cache: blocks of object generations in a bounded memory.
