//! Text in a column.

/// Breaks `text` at spaces into lines of at most `width` characters. A longer word, such as a URL, stays whole: it is
/// there to be copied.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let length = line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && length > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Columns of the terminal that standard output is, or a usual number.
pub(super) fn width() -> usize {
    const USUAL: usize = 100;
    terminal_size::terminal_size_of(std::io::stdout())
        .map_or(USUAL, |(terminal_size::Width(columns), _)| columns.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces_and_nowhere_else() {
        for (text, want) in [
            ("", &[""][..]),
            ("one two", &["one two"]),
            ("one two three", &["one two", "three"]),
            ("über drei vier", &["über", "drei", "vier"]),
            (
                "a http://long.example/ b",
                &["a", "http://long.example/", "b"],
            ),
        ] {
            assert_eq!(wrap(text, 8), want, "{text}");
        }
    }
}
