//! What somebody may have meant. Pure.

/// As near as this, a name is taken for a slip of the pen; the measure that clap uses for flags.
const NEAR: f64 = 0.7;

/// The end of a sentence about `name`, which is none of `known`: the nearest of them, or nothing.
pub(super) fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let name = name.replace('_', "-");
    let near = known
        .map(|known| (strsim::jaro(&name, &known.replace('_', "-")), known))
        .filter(|(likeness, _)| *likeness > NEAR)
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    near.map_or_else(String::new, |(_, known)| format!("; {known} is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_named() {
        let known = ["allow_other", "ro", "token-file", "token-url"];
        for (name, want) in [
            ("allow_othr", "; allow_other is"),
            ("tokenfile", "; token-file is"),
            ("token_fil", "; token-file is"),
            ("zzz", ""),
        ] {
            assert_eq!(hint(name, known.into_iter()), want, "{name}");
        }
    }
}
