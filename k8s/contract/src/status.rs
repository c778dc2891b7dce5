//! The error file: what the stock driver makes of its text, and how our errors are worded so that it makes the right
//! thing of them. The driver looks for phrases of gcsfuse and its libraries anywhere in the text; there is no other
//! channel, and no way to say a code outright.

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

impl Code {
    /// All of them, by number.
    pub const ALL: [Self; 9] = [
        Self::Ok,
        Self::Canceled,
        Self::InvalidArgument,
        Self::NotFound,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::Internal,
        Self::Unavailable,
        Self::Unauthenticated,
    ];

    /// The number of gRPC.
    #[must_use]
    pub fn number(self) -> i32 {
        self as i32
    }

    /// What stands before a sentence so that the driver makes this code of it. Where there is a choice, the phrase
    /// that is true of the widest range of sentences.
    fn words(self) -> &'static str {
        match self {
            Self::Ok | Self::Internal => "",
            Self::Canceled => TERMINATED,
            Self::InvalidArgument => INCORRECT_USAGE,
            Self::NotFound => NO_BUCKET,
            Self::PermissionDenied => FORBIDDEN,
            Self::ResourceExhausted => KILLED,
            Self::Unavailable => ACCESS_CHECK,
            Self::Unauthenticated => STORAGE_SERVICE,
        }
    }
}

const INCORRECT_USAGE: &str = "Incorrect Usage";
const UNKNOWN_FLAG: &str = "unknown flag";
const INVALID_VALUE: [&str; 3] = ["invalid argument ", " for ", " flag"];
const KILLED: &str = "signal: killed";
const TERMINATED: &str = "signal: terminated";
const FORBIDDEN: &str = "googleapi: Error 403";
const IAM_FORBIDDEN: &str = "IAM returned 403 Forbidden: Permission";
const NO_CREDENTIALS: &str = "google: could not find default credentials";
const NO_LIST_ACCESS: &str = "not have storage.objects.list access";
const NO_BUCKET: &str = "bucket doesn't exist";
const XDS: &str = "[xds] Attempt to set a bootstrap configuration even though one is already set via environment variables.";
const DEPRECATED: [&str; 2] = ["Flag ", " has been deprecated"];
const STORAGE_SERVICE: &str = "failed to setup storage service";
const ACCESS_CHECK: &str = "sidecar bucket access check error";

/// What no sentence of ours may say, since the driver would take it for a code. Of the phrases with a gap, the part
/// that is rarest in English.
const RESERVED: [&str; 14] = [
    INCORRECT_USAGE,
    UNKNOWN_FLAG,
    INVALID_VALUE[0],
    KILLED,
    TERMINATED,
    FORBIDDEN,
    IAM_FORBIDDEN,
    NO_CREDENTIALS,
    NO_LIST_ACCESS,
    NO_BUCKET,
    XDS,
    DEPRECATED[1],
    STORAGE_SERVICE,
    ACCESS_CHECK,
];

/// The code that the stock driver makes of `text`, the whole text of an error file. Its rules are tried in this order,
/// and a later one overrides what an earlier one found, but for the two about harmless noise, which end the search.
#[must_use]
pub fn code_of(text: &str) -> Code {
    let says = |phrase: &str| text.contains(phrase);
    if text.is_empty() {
        return Code::Ok;
    }
    if says(XDS) || in_one_line(text, &DEPRECATED) {
        return Code::Unavailable;
    }
    let mut code = Code::Internal;
    if says(INCORRECT_USAGE) || says(UNKNOWN_FLAG) || in_one_line(text, &INVALID_VALUE) {
        code = Code::InvalidArgument;
    }
    if says(KILLED) {
        code = Code::ResourceExhausted;
    }
    if says(TERMINATED) {
        code = Code::Canceled;
    }
    if [FORBIDDEN, IAM_FORBIDDEN, NO_CREDENTIALS, NO_LIST_ACCESS]
        .into_iter()
        .any(says)
    {
        code = Code::PermissionDenied;
    }
    if says(NO_BUCKET) {
        code = Code::NotFound;
    }
    if says(STORAGE_SERVICE) {
        code = Code::Unauthenticated;
    }
    if says(ACCESS_CHECK) && code == Code::Internal {
        code = Code::Unavailable;
    }
    code
}

/// Whether a line has the `parts` in this order, with anything or nothing between them.
fn in_one_line(text: &str, parts: &[&str]) -> bool {
    text.split('\n').any(|line| {
        parts
            .iter()
            .try_fold(line, |rest, part| {
                rest.split_once(part).map(|(_, after)| after)
            })
            .is_some()
    })
}

/// The text to write so that the stock driver reports `sentence` under `code`: one line, empty for [`Code::Ok`]. A
/// phrase in `sentence` that the driver would take for a code is kept readable and defused: its first space becomes a
/// hyphen, as in `unknown-flag`. So the driver's reading of the text is `code`, whatever the sentence says.
#[must_use]
pub fn error_text(code: Code, sentence: &str) -> String {
    if code == Code::Ok {
        return String::new();
    }
    let sentence = defuse(&sentence.replace(char::is_control, " "));
    match code.words() {
        "" => format!("{sentence}\n"),
        words => format!("{words}: {sentence}\n"),
    }
}

fn defuse(sentence: &str) -> String {
    RESERVED.iter().fold(sentence.to_owned(), |said, phrase| {
        // The gap of a regular expression may begin with a space of its own.
        let space = phrase[1..].find(' ').map_or(0, |at| at + 1);
        let hyphened = format!("{}-{}", &phrase[..space], &phrase[space + 1..]);
        said.replace(phrase, &hyphened)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_become_codes_as_section_2_5_of_the_hand_off_says() {
        for (text, code) in [
            ("", Code::Ok),
            ("\n", Code::Internal),
            ("panic: runtime error", Code::Internal),
            ("Incorrect Usage. flag provided", Code::InvalidArgument),
            ("Error: unknown flag: --x", Code::InvalidArgument),
            (
                r#"Error: invalid argument "x" for "--uid" flag: strconv"#,
                Code::InvalidArgument,
            ),
            ("invalid argument  for  flag", Code::InvalidArgument),
            ("invalid argument \"x\" for\n\"--uid\" flag", Code::Internal),
            ("invalid argument for flag", Code::Internal),
            ("flag for invalid argument ", Code::Internal),
            (
                "gcsfuse exited with error: signal: killed",
                Code::ResourceExhausted,
            ),
            (
                "gcsfuse exited with error: signal: terminated",
                Code::Canceled,
            ),
            ("googleapi: Error 403: x, forbidden", Code::PermissionDenied),
            ("googleapi: Error 404: x", Code::Internal),
            (
                "IAM returned 403 Forbidden: Permission 'x'",
                Code::PermissionDenied,
            ),
            (
                "google: could not find default credentials.",
                Code::PermissionDenied,
            ),
            (
                "x does not have storage.objects.list access to y",
                Code::PermissionDenied,
            ),
            ("error: bucket doesn't exist", Code::NotFound),
            ("Flag --x has been deprecated, use --y", Code::Unavailable),
            ("Flag --x\n has been deprecated", Code::Internal),
            ("failed to setup storage service: x", Code::Unauthenticated),
            ("sidecar bucket access check error: x", Code::Unavailable),
        ] {
            assert_eq!(code_of(text), code, "{text:?}");
        }
    }

    #[test]
    fn later_rules_of_section_2_5_override_earlier_ones() {
        let mut text = String::from("x");
        for (more, code) in [
            ("unknown flag", Code::InvalidArgument),
            ("signal: killed", Code::ResourceExhausted),
            ("signal: terminated", Code::Canceled),
            ("googleapi: Error 403", Code::PermissionDenied),
            ("bucket doesn't exist", Code::NotFound),
            ("failed to setup storage service", Code::Unauthenticated),
            ("sidecar bucket access check error", Code::Unauthenticated),
            ("Flag --x has been deprecated", Code::Unavailable),
        ] {
            // Where in the text it stands does not count.
            text = format!("{more}\n{text}");
            assert_eq!(code_of(&text), code, "{text:?}");
        }
        assert_eq!(
            code_of(&format!("bucket doesn't exist {XDS}")),
            Code::Unavailable
        );
    }

    #[test]
    fn numbers_are_those_of_grpc() {
        assert_eq!(Code::ALL.map(Code::number), [0, 1, 3, 5, 7, 8, 13, 14, 16]);
    }

    #[test]
    fn an_error_of_ours_is_one_line_that_says_code_and_sentence() {
        assert_eq!(
            error_text(Code::PermissionDenied, "bucket a: no\nlist rights"),
            "googleapi: Error 403: bucket a: no list rights\n"
        );
        assert_eq!(error_text(Code::Internal, "a defect"), "a defect\n");
        assert_eq!(error_text(Code::Ok, "all is well"), "");
    }

    #[test]
    fn a_phrase_with_a_meaning_stays_readable_and_loses_its_meaning() {
        assert_eq!(
            error_text(Code::NotFound, "unknown flag, signal: killed"),
            "bucket doesn't exist: unknown-flag, signal:-killed\n"
        );
        for phrase in RESERVED {
            let defused = defuse(phrase);
            assert_eq!(defused.len(), phrase.len());
            assert!(!defused.contains(phrase), "{defused}");
        }
    }

    fn sentence() -> impl Strategy<Value = String> {
        let words = prop_oneof![
            3 => prop::sample::select(RESERVED.as_slice()).prop_map(str::to_owned),
            1 => prop::sample::select(vec!["Flag ", " for ", " flag", "\n", "signal: ", "-"])
                .prop_map(str::to_owned),
            2 => ".{0,12}",
        ];
        prop::collection::vec(words, 0..8).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn every_error_of_ours_is_read_as_its_code(
            code in prop::sample::select(Code::ALL.as_slice()),
            sentence in sentence(),
        ) {
            prop_assert_eq!(code_of(&error_text(code, &sentence)), code);
        }

        #[test]
        fn a_plain_sentence_is_kept_word_for_word(sentence in "[a-zA-Z0-9 ,.:'/]{0,80}") {
            prop_assume!(RESERVED.iter().all(|phrase| !sentence.contains(phrase)));
            let text = error_text(Code::Unauthenticated, &sentence);
            let line = sentence + "\n";
            prop_assert!(text.ends_with(&line));
        }
    }
}
