//! What `--access-boundary` leaves of a bucket. Pure: that the bucket would refuse what lies outside is known before
//! anybody is asked.

use gcsmount_auth::boundary::Access;

/// One `BUCKET[/PREFIX][:ro]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Limit {
    /// The bucket.
    pub bucket: String,
    /// What the names of its objects begin with.
    pub prefix: String,
    /// What may be done there.
    pub access: Access,
}

/// What the limits leave of a directory of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach<'a> {
    /// All of it, with this access.
    Whole(Access),
    /// No more than what begins with this prefix, which lies deeper.
    Below(&'a str),
    /// Nothing.
    Nothing,
}

impl Limit {
    /// Splits `BUCKET[/PREFIX][:ro]`. Whether the bucket's name is one is for others to judge.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let (name, access) = match text.strip_suffix(":ro") {
            Some(name) => (name, Access::Read),
            None => (text, Access::Write),
        };
        let name = name.strip_prefix("gs://").unwrap_or(name);
        let (bucket, prefix) = name.split_once('/').unwrap_or((name, ""));
        Self {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            access,
        }
    }
}

/// What `limits` leave of what begins with `root` in `bucket`. Without limits that is all of it.
#[must_use]
pub fn reach<'a>(limits: &'a [Limit], bucket: &str, root: &str) -> Reach<'a> {
    if limits.is_empty() {
        return Reach::Whole(Access::Write);
    }
    let here = || limits.iter().filter(|limit| limit.bucket == bucket);
    let mut around = here()
        .filter(|limit| root.starts_with(&limit.prefix))
        .map(|limit| limit.access);
    match around.next() {
        Some(first) if first == Access::Write || around.any(|other| other == Access::Write) => {
            Reach::Whole(Access::Write)
        }
        Some(_) => Reach::Whole(Access::Read),
        None => match here().find(|limit| limit.prefix.starts_with(root)) {
            Some(limit) => Reach::Below(&limit.prefix),
            None => Reach::Nothing,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_inside_above_or_outside() {
        const ALL: Reach<'_> = Reach::Whole(Access::Write);
        const READ: Reach<'_> = Reach::Whole(Access::Read);
        for (limits, root, want) in [
            (&[][..], "", ALL),
            (&["b"], "", ALL),
            (&["gs://b/"], "deep/", ALL),
            (&["b:ro"], "", READ),
            (&["b:ro", "b/a/"], "", READ),
            (&["b:ro", "b/a/"], "a/b/", ALL),
            (&["b/a/"], "a/", ALL),
            (&["b/a"], "a/", ALL),
            (&["b/a/"], "", Reach::Below("a/")),
            (&["b/a/b/:ro"], "a/", Reach::Below("a/b/")),
            (&["b/a/"], "c/", Reach::Nothing),
            (&["other"], "", Reach::Nothing),
        ] {
            let limits: Vec<_> = limits.iter().map(|text| Limit::parse(text)).collect();
            assert_eq!(reach(&limits, "b", root), want, "{limits:?} {root}");
        }
    }
}
