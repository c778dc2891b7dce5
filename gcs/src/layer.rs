//! What is built on any store: [`parts`] brings a large object into a bucket over several connections.

pub mod parts;
