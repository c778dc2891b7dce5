//! Clients of Google Cloud Storage: [`json`] speaks the JSON API over HTTP.

pub mod json;
