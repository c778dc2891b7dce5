use std::time::SystemTime;

use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::{Generation, Metageneration};
use proptest::prelude::*;

use super::*;

fn object(name: &str) -> Object {
    Object {
        name: ObjectName::parse(name).unwrap(),
        generation: Generation(1),
        metageneration: Metageneration(1),
        size: 0,
        crc32c: None,
        md5: None,
        created: SystemTime::UNIX_EPOCH,
        updated: SystemTime::UNIX_EPOCH,
        component_count: None,
        attributes: Attributes::default(),
    }
}

/// A page as a store makes it of `names` under `prefix`, with folding at the slash.
fn page(prefix: &str, names: &[&str], more: bool) -> ListPage {
    let mut page = ListPage {
        next_page_token: more.then(|| "next".to_owned()),
        ..ListPage::default()
    };
    for name in names {
        match name[prefix.len()..].split_once('/') {
            Some((dir, _)) => page.prefixes.push(format!("{prefix}{dir}/")),
            None => page.objects.push(object(name)),
        }
    }
    page.prefixes.dedup();
    page
}

fn shown(entries: &[Entry]) -> Vec<String> {
    entries
        .iter()
        .map(|e| match e.node {
            Node::Dir(_) => format!("{}/", e.name),
            Node::File(_) => e.name.to_string(),
        })
        .collect()
}

#[test]
fn a_placeholder_that_is_listed_goes_with_its_directory_and_is_no_entry() {
    let mut pages = Pages::new("d/".to_owned(), false);
    let mut listed = page("d/", &["d/", "d/a", "d/b/", "d/b/x", "d/c/y"], false);
    listed.objects.push(object("d/b/"));
    let entries = pages.add(listed);
    assert_eq!(shown(&entries), ["a", "b/", "c/"]);
    let met: Vec<_> = entries
        .iter()
        .map(|entry| matches!(entry.node, Node::Dir(Some(_))))
        .collect();
    assert_eq!(met, [false, true, false]);
}

#[test]
fn pages_become_entries() {
    let table: &[(&str, &[&str], &[&str], u64)] = &[
        ("", &["a", "b/c", "b/d"], &["a", "b/"], 0),
        // The placeholder of the directory itself is no entry; that of a directory below is one.
        ("d/", &["d/", "d/e/", "d/f"], &["f", "e/"], 0),
        // A file and a directory of the same name.
        ("", &["foo", "foo/x"], &["foo\n", "foo/"], 0),
        (
            "",
            &["foo", "foo-1", "foo/x"],
            &["foo\n", "foo-1", "foo/"],
            0,
        ),
        // What the kernel cannot hold.
        ("", &["/a", "./b", "../c", "ok"], &["ok"], 3),
        ("a/", &["a//b", "a/c"], &["c"], 1),
        // Ours, at the root alone.
        ("", &[".gcsmount/m/1", "x"], &["x"], 0),
        ("d/", &["d/.gcsmount/1"], &[".gcsmount/"], 0),
        ("", &["50% #1?+", "é"], &["50% #1?+", "é"], 0),
    ];
    for (prefix, names, entries, hidden) in table {
        let mut pages = Pages::new((*prefix).to_owned(), prefix.is_empty());
        assert_eq!(
            shown(&pages.add(page(prefix, names, false))),
            *entries,
            "{names:?}"
        );
        assert_eq!(pages.hidden(), *hidden, "{names:?}");
    }
}

#[test]
fn a_long_name_is_hidden() {
    let longest = "x".repeat(NAME_MAX);
    let long = "y".repeat(NAME_MAX + 1);
    let mut pages = Pages::new(String::new(), true);
    let names = [longest.as_str(), long.as_str()];
    assert_eq!(shown(&pages.add(page("", &names, false))), [longest]);
    assert_eq!(pages.hidden(), 1);
}

#[test]
fn a_file_waits_for_the_page_that_may_have_its_directory() {
    let mut pages = Pages::new(String::new(), true);
    assert_eq!(shown(&pages.add(page("", &["a", "foo"], true))), ["a"]);
    assert_eq!(
        shown(&pages.add(page("", &["foo!"], true))),
        Vec::<String>::new()
    );
    assert_eq!(shown(&pages.add(page("", &[], true))), Vec::<String>::new());
    assert_eq!(
        shown(&pages.add(page("", &["foo-1", "foo/x", "foo0"], true))),
        ["foo\n", "foo!", "foo-1", "foo/"]
    );
    assert_eq!(shown(&pages.add(page("", &[], false))), ["foo0"]);
}

#[test]
fn new_names_are_checked() {
    let long = "x".repeat(NAME_MAX + 1);
    let deep = "d/".repeat(510);
    type Row<'a> = (&'a str, bool, &'a [u8], Result<&'a str, Errno>);
    let table: &[Row<'_>] = &[
        ("", true, b"a", Ok("a")),
        ("", true, b"a\nb", Err(Errno::EINVAL)),
        ("", true, b"a\r", Err(Errno::EINVAL)),
        ("", true, b"\xff", Err(Errno::EILSEQ)),
        ("", true, long.as_bytes(), Err(Errno::ENAMETOOLONG)),
        (&deep, false, b"12345", Err(Errno::ENAMETOOLONG)),
        (&deep, false, b"1234", Ok("1234")),
        ("", true, b".gcsmount", Err(Errno::EPERM)),
        ("d/", false, b".gcsmount", Ok(".gcsmount")),
        (
            ".well-known/acme-challenge/",
            false,
            b"x",
            Err(Errno::EINVAL),
        ),
    ];
    for (prefix, root, name, expected) in table {
        assert_eq!(
            creatable(prefix, *root, OsStr::from_bytes(name), false),
            *expected,
            "{prefix} {name:?}"
        );
    }
    assert_eq!(
        creatable(&deep, false, OsStr::new("1234"), true),
        Err(Errno::ENAMETOOLONG)
    );
}

#[test]
fn reachable_names_have_holdable_parts() {
    for good in ["a", "a/b", "a/"] {
        assert!(is_reachable(good), "{good}");
    }
    for bad in ["", "/a", "a//b", "a/./b", "..", "a//"] {
        assert!(!is_reachable(bad), "{bad}");
    }
}

proptest! {
    /// However a listing is cut into pages, the same entries come out, each name once.
    #[test]
    fn cuts_do_not_matter(
        names in prop::collection::btree_set("[ab!/0]{1,5}", 1..30),
        cuts in prop::collection::vec(any::<bool>(), 30),
    ) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let whole = shown(&Pages::new(String::new(), true).add(page("", &names, false)));

        let mut pages = Pages::new(String::new(), true);
        let mut pieces: Vec<Vec<&str>> = vec![Vec::new()];
        let mut folded: Option<&str> = None;
        for (name, cut) in names.iter().zip(&cuts) {
            // A store never splits a folded prefix over two pages.
            let dir = name.split_once('/').map(|(dir, _)| dir);
            if *cut && (dir.is_none() || dir != folded) {
                pieces.push(Vec::new());
            }
            folded = dir;
            pieces.last_mut().unwrap().push(name);
        }
        let last = pieces.len() - 1;
        let mut cut = Vec::new();
        for (i, piece) in pieces.iter().enumerate() {
            cut.extend(shown(&pages.add(page("", piece, i < last))));
        }
        let mut sorted = whole.clone();
        sorted.sort();
        cut.sort();
        prop_assert_eq!(&cut, &sorted);
        sorted.dedup_by_key(|name| name.trim_end_matches('/').to_owned());
        prop_assert_eq!(sorted.len(), cut.len());
    }
}
