//! gcsmount-gcs: the object store seen as a contract, its clients and its doubles.
