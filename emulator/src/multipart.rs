//! MIME multipart bodies (RFC 2046 section 5.1), of uploads and of batches.

use bytes::Bytes;
use memchr::memmem;

use crate::error::ApiError;

/// One part of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Part {
    /// A header by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

pub(crate) fn malformed(why: &str) -> ApiError {
    ApiError::invalid(format!("Malformed multipart body: {why}."))
}

/// The `boundary` parameter of the content type, quoted or not.
pub(crate) fn boundary(content_type: &str) -> Result<String, ApiError> {
    let parameters = content_type.split(';').skip(1);
    let found = parameters
        .filter_map(|parameter| parameter.split_once('='))
        .find_map(|(key, value)| {
            let is_boundary = key.trim().eq_ignore_ascii_case("boundary");
            is_boundary.then(|| value.trim().trim_matches('"').to_owned())
        });
    let is_multipart = content_type
        .trim_start()
        .to_ascii_lowercase()
        .starts_with("multipart/");
    found
        .filter(|boundary| is_multipart && !boundary.is_empty())
        .ok_or_else(|| malformed("the content type has no boundary"))
}

/// Cuts a body at its boundary (RFC 2046 section 5.1.1). Lines end as the first delimiter's line does: some
/// clients send bare line feeds.
pub(crate) fn split(body: &Bytes, boundary: &[u8]) -> Result<Vec<Part>, ApiError> {
    let mut cut = Cut::open(body, boundary)?;
    let mut parts = Vec::new();
    while let Some(part) = cut.next()? {
        parts.push(part);
    }
    Ok(parts)
}

/// The first part of a body, as soon as all of that part is there.
pub(crate) fn first(body: &Bytes, boundary: &[u8]) -> Option<Part> {
    Cut::open(body, boundary).ok()?.next().ok()?
}

/// A body on its way to parts.
struct Cut<'a> {
    body: &'a Bytes,
    /// Behind the last delimiter.
    at: usize,
    end_of_line: &'static [u8],
    delimiter: memmem::Finder<'static>,
}

impl<'a> Cut<'a> {
    fn open(body: &'a Bytes, boundary: &[u8]) -> Result<Self, ApiError> {
        let opening = [b"--", boundary].concat();
        let start =
            memmem::find(body, &opening).ok_or_else(|| malformed("there is no boundary"))?;
        let at = start + opening.len();
        let end_of_line: &[u8] = match memchr::memchr(b'\n', &body[at..]) {
            Some(0) => b"\n",
            Some(newline) if body[at + newline - 1] != b'\r' => b"\n",
            Some(_) => b"\r\n",
            None => return Err(malformed("the first part is missing")),
        };
        let delimiter = [end_of_line, &opening].concat();
        Ok(Self {
            body,
            at,
            end_of_line,
            delimiter: memmem::Finder::new(&delimiter).into_owned(),
        })
    }

    fn next(&mut self) -> Result<Option<Part>, ApiError> {
        let rest = &self.body[self.at..];
        if rest.starts_with(b"--") {
            return Ok(None);
        }
        let line =
            memmem::find(rest, self.end_of_line).ok_or_else(|| malformed("a part is cut short"))?;
        let start = self.at + line + self.end_of_line.len();
        let length = self
            .delimiter
            .find(&self.body[start..])
            .ok_or_else(|| malformed("there is no closing boundary"))?;
        let end = start + length;
        let part = parse_part(&self.body.slice(start..end), self.end_of_line)?;
        self.at = end + self.delimiter.needle().len();
        Ok(Some(part))
    }
}

fn parse_part(part: &Bytes, end_of_line: &[u8]) -> Result<Part, ApiError> {
    if part.starts_with(end_of_line) {
        return Ok(Part {
            headers: Vec::new(),
            body: part.slice(end_of_line.len()..),
        });
    }
    let blank = end_of_line.repeat(2);
    let headers_end =
        memmem::find(part, &blank).ok_or_else(|| malformed("a part has no blank line"))?;
    let headers = String::from_utf8_lossy(&part[..headers_end]);
    Ok(Part {
        headers: parse_headers(&headers),
        body: part.slice(headers_end + blank.len()..),
    })
}

/// Header lines as pairs, names in lower case.
pub(crate) fn parse_headers(lines: &str) -> Vec<(String, String)> {
    let pairs = lines.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(body: &str) -> Result<Vec<(Option<String>, String)>, ApiError> {
        let parts = split(&Bytes::copy_from_slice(body.as_bytes()), b"B")?;
        let text = |part: Part| {
            (
                part.header("content-type").map(str::to_owned),
                String::from_utf8(part.body.to_vec()).unwrap(),
            )
        };
        Ok(parts.into_iter().map(text).collect())
    }

    #[test]
    fn parts_with_and_without_headers_in_both_line_ends() {
        let crlf = "preamble\r\n--B\r\nContent-Type: a/b\r\nX: y\r\n\r\n{}\r\n--B\r\n\r\nda\nta\r\n\r\n--B--\r\nepilogue";
        let expected = [
            (Some("a/b".to_owned()), "{}".to_owned()),
            (None, "da\nta\r\n".to_owned()),
        ];
        assert_eq!(bodies(crlf).unwrap(), expected);
        let lf = "--B\ncontent-type: a/b\n\n{}\n--B\n\ndata\r\n--B--";
        let expected = [
            (Some("a/b".to_owned()), "{}".to_owned()),
            (None, "data\r".to_owned()),
        ];
        assert_eq!(bodies(lf).unwrap(), expected);
    }

    #[test]
    fn empty_data_and_data_like_a_boundary() {
        let body = "--B\r\n\r\n{}\r\n--B\r\nContent-Type: x/y\r\n\r\n\r\n--B--";
        assert_eq!(
            bodies(body).unwrap()[1],
            (Some("x/y".to_owned()), String::new())
        );
        let body = "--B\r\n\r\n{}\r\n--B\r\n\r\nx--B\r\n-B\r\n--B--";
        assert_eq!(bodies(body).unwrap()[1].1, "x--B\r\n-B");
    }

    #[test]
    fn the_first_part_is_there_before_the_others() {
        let body = "--B\r\n\r\n{\"name\":1}\r\n--B\r\nX: y\r\n\r\ndata\r\n--B--";
        let until = body.find("X: y").unwrap();
        for (length, there) in [(0, false), (8, false), (until - 3, false), (until, true)] {
            let head = Bytes::copy_from_slice(&body.as_bytes()[..length]);
            let part = first(&head, b"B").map(|part| part.body);
            assert_eq!(part, there.then(|| Bytes::from("{\"name\":1}")), "{length}");
        }
    }

    #[test]
    fn broken_bodies_are_refused() {
        for body in [
            "",
            "x",
            "--B",
            "--B\r\n\r\n{}",
            "--B\r\nno blank line\r\n--B--",
        ] {
            assert!(bodies(body).is_err(), "{body:?}");
        }
    }

    #[test]
    fn boundaries() {
        for (header, expected) in [
            ("multipart/related; boundary=abc", Some("abc")),
            (
                "Multipart/Related; type=x; Boundary=\"==0==\"",
                Some("==0=="),
            ),
            ("multipart/related", None),
            ("text/plain; boundary=abc", None),
            ("multipart/related; boundary=", None),
        ] {
            assert_eq!(boundary(header).ok().as_deref(), expected, "{header}");
        }
    }
}
