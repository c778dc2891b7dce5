//! Files in and out of a mount, by the tools that people use.

use std::fs;
use std::path::Path;

use crate::kit::{World, blocking, can_mount, run};

/// Bytes that look random and are the same each time.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    use rand::{Rng, SeedableRng};
    let mut data = vec![0; len];
    rand::rngs::SmallRng::seed_from_u64(seed).fill_bytes(&mut data);
    data
}

fn plant_tree(root: &Path) {
    for dir in 0..40u64 {
        let dir_path = root.join(format!("part {dir}/inner"));
        fs::create_dir_all(&dir_path).unwrap();
        for file in 0..50u64 {
            let len = usize::try_from((dir * 50 + file) % 7 * 900).unwrap();
            fs::write(
                dir_path.join(format!("{file} #%?+é.bin")),
                noise(dir * 50 + file, len),
            )
            .unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_two_thousand_files_comes_back_as_it_went_in() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mount = world.mount(&[]).await;
    let tree = world.path("tree");
    let planted = tree.clone();
    blocking(move || plant_tree(&planted)).await;

    let (copied, said) = run(
        "cp",
        [
            "-r".as_ref(),
            tree.as_os_str(),
            mount.path("copy").as_os_str(),
        ],
    )
    .await;
    assert!(copied, "{said}");
    let (same, said) = run(
        "diff",
        [
            "-r".as_ref(),
            tree.as_os_str(),
            mount.path("copy").as_os_str(),
        ],
    )
    .await;
    assert!(same, "{said}");
    mount.stop().await;

    // A mount that has seen nothing of it finds the same.
    let mount = world.mount(&[]).await;
    let (same, said) = run(
        "diff",
        [
            "-r".as_ref(),
            tree.as_os_str(),
            mount.path("copy").as_os_str(),
        ],
    )
    .await;
    assert!(same, "{said}");
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_goes_in_and_out_within_256_mib_of_memory() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mount = world.mount(&[]).await;
    let (source, back) = (world.path("source"), world.path("back"));
    let file = source.clone();
    blocking(move || {
        use std::io::Write;
        let mut out = fs::File::create(file).unwrap();
        for piece in 0..64 {
            out.write_all(&noise(piece, 16 << 20)).unwrap();
        }
    })
    .await;
    for (from, to) in [(&source, &mount.path("big")), (&mount.path("big"), &back)] {
        let (copied, said) = run("cp", [from, to]).await;
        assert!(copied, "{said}");
    }
    let (same, said) = run("cmp", [&source, &back]).await;
    assert!(same, "{said}");
    let peak = mount.peak_mib();
    println!("peak memory of the mount: {peak} MiB");
    assert!(peak < 256, "{peak} MiB");
    mount.stop().await;
}
