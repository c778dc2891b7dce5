//! The contract, held against bytes that were written from its description.
