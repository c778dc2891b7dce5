//! The arrows between our crates are those that docs/ARCHITECTURE.md draws.

use std::collections::BTreeSet;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// The arrows as the document lists them: lines `from -> to` in its block named `arrows`.
fn drawn() -> BTreeSet<(String, String)> {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/ARCHITECTURE.md"))
            .unwrap();
    let (_, rest) = text
        .split_once("```arrows\n")
        .expect("ARCHITECTURE.md has a block named arrows");
    let (block, _) = rest.split_once("```").expect("the block ends");
    block
        .lines()
        .filter_map(|line| line.split_once("->"))
        .map(|(from, to)| (from.trim().to_owned(), to.trim().to_owned()))
        .collect()
}

#[test]
fn crates_depend_on_each_other_as_drawn() {
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .unwrap();
    let ours: BTreeSet<_> = metadata
        .workspace_packages()
        .iter()
        .map(|p| p.name.to_string())
        .collect();
    let mut found = BTreeSet::new();
    for package in metadata.workspace_packages() {
        for dependency in &package.dependencies {
            if dependency.kind == DependencyKind::Normal && ours.contains(&dependency.name) {
                found.insert((package.name.to_string(), dependency.name.clone()));
            }
        }
    }
    assert_eq!(found, drawn());
}
