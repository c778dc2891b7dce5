//! gcsmount-emulator: Google Cloud Storage, STS and the metadata server's traps on loopback.
