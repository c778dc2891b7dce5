//! The conditions of an access boundary, in as much of the Common Expression Language as clients write: the start
//! of an object's name, the start of a list's prefix, and `||` between those.

use crate::name::BucketName;
use crate::role::Resource;

const LIST_PREFIX: &str = "storage.googleapis.com/objectListPrefix";

/// Holds where one of its terms does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    /// `resource.name.startsWith(…)`
    Name(String),
    /// `api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith(…)`
    ListPrefix(String),
}

impl Condition {
    /// `None` for an expression that is none, or not supported.
    pub(super) fn parse(expression: &str) -> Option<Self> {
        let mut scanner = Scanner(expression);
        let mut terms = vec![scanner.term()?];
        while !scanner.is_at_end() {
            scanner.take("||")?;
            terms.push(scanner.term()?);
        }
        Some(Self(terms))
    }

    /// Whether it holds for something of the bucket. A list is asked of the bucket and names no object; whatever is
    /// no list has an empty list prefix.
    pub(super) fn holds(&self, bucket: &BucketName, resource: Resource<'_>) -> bool {
        let name = match resource {
            Resource::Object(object) => format!("projects/_/buckets/{bucket}/objects/{object}"),
            Resource::Folder(folder) => format!("projects/_/buckets/{bucket}/folders/{folder}"),
            Resource::Bucket | Resource::Listing(_) => format!("projects/_/buckets/{bucket}"),
        };
        let list_prefix = match resource {
            Resource::Listing(prefix) => prefix,
            Resource::Bucket | Resource::Object(_) | Resource::Folder(_) => "",
        };
        self.0.iter().any(|term| match term {
            Term::Name(start) => name.starts_with(start),
            Term::ListPrefix(start) => list_prefix.starts_with(start),
        })
    }
}

/// What is left of an expression.
struct Scanner<'a>(&'a str);

impl Scanner<'_> {
    fn term(&mut self) -> Option<Term> {
        let is_name = self.take("resource").is_some();
        if is_name {
            self.all(&[".", "name"])?;
        } else {
            self.all(&["api", ".", "getAttribute", "("])?;
            let attribute = self.string()?;
            self.take(",")?;
            let default = self.string()?;
            self.take(")")?;
            if attribute != LIST_PREFIX || !default.is_empty() {
                return None;
            }
        }
        self.all(&[".", "startsWith", "("])?;
        let start = self.string()?;
        self.take(")")?;
        Some(if is_name {
            Term::Name(start)
        } else {
            Term::ListPrefix(start)
        })
    }

    fn skip_space(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.0.is_empty()
    }

    fn take(&mut self, token: &str) -> Option<()> {
        self.skip_space();
        self.0 = self.0.strip_prefix(token)?;
        Some(())
    }

    fn all(&mut self, tokens: &[&str]) -> Option<()> {
        tokens.iter().try_for_each(|token| self.take(token))
    }

    /// A string in single or double quotes, with the escapes of the language.
    fn string(&mut self) -> Option<String> {
        self.skip_space();
        let quote = self.0.chars().next().filter(|c| ['\'', '"'].contains(c))?;
        let mut text = String::new();
        let mut chars = self.0[1..].chars();
        loop {
            match chars.next()? {
                '\r' | '\n' => return None,
                '\\' => {
                    let (c, rest) = escape(chars.as_str())?;
                    text.push(c);
                    chars = rest.chars();
                }
                c if c == quote => {
                    self.0 = chars.as_str();
                    return Some(text);
                }
                c => text.push(c),
            }
        }
    }
}

/// The character that an escape stands for, and what comes after it. See "String and Bytes Values" in the
/// definition of the language.
fn escape(text: &str) -> Option<(char, &str)> {
    let kind = text.chars().next()?;
    let rest = &text[kind.len_utf8()..];
    let plain = match kind {
        '\\' | '\'' | '"' | '`' | '?' => kind,
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        'x' | 'X' => return code(rest, 2, 16),
        'u' => return code(rest, 4, 16),
        'U' => return code(rest, 8, 16),
        '0'..='3' => return code(text, 3, 8),
        _ => return None,
    };
    Some((plain, rest))
}

/// A code point in so many digits.
fn code(text: &str, digits: usize, radix: u32) -> Option<(char, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    let sane = number.chars().all(|c| c.is_digit(radix));
    let point = u32::from_str_radix(number, radix).ok().filter(|_| sane)?;
    Some((char::from_u32(point)?, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(literal: &str) -> Option<Condition> {
        Condition::parse(&format!("resource.name.startsWith({literal})"))
    }

    fn is(text: &str) -> Option<Condition> {
        Some(Condition(vec![Term::Name(text.to_owned())]))
    }

    #[test]
    fn literals_are_read_with_their_escapes() {
        for (literal, text) in [
            ("'a'", "a"),
            ("\"a'b\"", "a'b"),
            (r"'a\'b\\'", r"a'b\"),
            (r#"'\"\`\?'"#, "\"`?"),
            (r"'\a\b\f\n\r\t\v'", "\x07\x08\x0c\n\r\t\x0b"),
            (r"'\x41\X42\u00fc\U0001F600\101'", "ABü😀A"),
            ("'ü'", "ü"),
        ] {
            assert_eq!(name(literal), is(text), "{literal}");
        }
        for literal in [
            "a",
            "'a",
            "a'",
            "'a\"",
            r"'\'",
            r"'\q'",
            r"'\x4'",
            r"'\x+1'",
            r"'\ud800'",
            r"'\U00110000'",
            r"'\08'",
            r"'\401'",
            r"'\xü1'",
            "'a\nb'",
            "r'a'",
            "'''a'''",
        ] {
            assert_eq!(name(literal), None, "{literal}");
        }
    }

    #[test]
    fn expressions_that_are_supported_and_some_that_are_not() {
        let list =
            "api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('b')";
        let both = format!("resource.name.startsWith('a') || {list}");
        let terms = vec![Term::Name("a".into()), Term::ListPrefix("b".into())];
        assert_eq!(Condition::parse(&both), Some(Condition(terms)));
        let spaced = " resource . name . startsWith ( 'a' )\n||resource.name.startsWith('b') ";
        let terms = vec![Term::Name("a".into()), Term::Name("b".into())];
        assert_eq!(Condition::parse(spaced), Some(Condition(terms)));
        for expression in [
            "",
            "true",
            "resource.name == 'a'",
            "resource.name.endsWith('a')",
            "resource.type.startsWith('a')",
            "!resource.name.startsWith('a')",
            "resource.name.startsWith('a') && resource.name.startsWith('b')",
            "resource.name.startsWith('a') ||",
            "resource.name.startsWith('a') resource.name.startsWith('b')",
            "(resource.name.startsWith('a'))",
            "resourcename.startsWith('a')",
            "api.getAttribute('storage.googleapis.com/objectListPrefix', 'b').startsWith('b')",
            "api.getAttribute('other', '').startsWith('b')",
            "request.time < timestamp('2030-01-01T00:00:00Z')",
        ] {
            assert_eq!(Condition::parse(expression), None, "{expression}");
        }
    }

    proptest! {
        #[test]
        fn a_quoted_text_is_read_back(text in "[^\r\n]{0,60}") {
            let quoted = text.replace('\\', r"\\").replace('\'', r"\'");
            prop_assert_eq!(name(&format!("'{quoted}'")), is(&text));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,80}", literal in "['\"\\\\a-z0-9üXU]{0,20}") {
            let _ = Condition::parse(&text);
            let _ = name(&literal);
            let _ = name(&format!("'{literal}'"));
        }
    }
}
