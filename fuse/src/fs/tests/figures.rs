use std::ffi::OsStr;

use bytes::Bytes;

use super::super::*;
use super::kit::{READ, bench_with};
use crate::observer::Figures;
use crate::observer::recording::Recording;

#[tokio::test]
async fn figures_are_what_is_there() {
    let bench = bench_with(|config| config.buffer_limit = 8);
    let empty = bench.fs.figures();
    assert_eq!(
        empty,
        Figures {
            inodes: 1,
            ..Figures::default()
        }
    );
    bench.put("read", "x").await;
    let ino = bench.ino("read").await;
    let reading = bench.fs.open(ino, READ).await.unwrap().fh;
    let dir = bench.fs.opendir(Ino::ROOT).unwrap();
    let (_, small) = bench.create("small").await;
    bench.write(small, "1").await;
    let (_, streaming) = bench.create("streaming").await;
    bench.write(streaming, "123456789").await;
    let (_, staged) = bench.create("staged").await;
    let far = Bytes::from_static(b"far");
    bench.fs.write(staged, 20, far, false).await.unwrap();
    let figures = bench.fs.figures();
    assert_eq!(
        figures,
        Figures {
            file_handles: 4,
            directory_handles: 1,
            inodes: 5,
            known_names: figures.known_names,
            dirty_files: 3,
            staged_bytes: 23,
            streams: 1,
        }
    );
    for fh in [small, streaming, staged] {
        bench.fs.flush(fh).await.unwrap();
    }
    assert_eq!(bench.fs.figures().dirty_files, 0);
    for fh in [reading, small, streaming, staged] {
        bench.fs.release(fh).await;
    }
    bench.fs.releasedir(dir);
    let after = bench.fs.figures();
    assert_eq!((after.file_handles, after.directory_handles), (0, 0));
    assert_eq!((after.staged_bytes, after.streams), (0, 0));
}

#[tokio::test]
async fn what_a_publication_replaces_is_observed() {
    let recording = Arc::new(Recording::default());
    let observer = recording.clone();
    let bench = bench_with(|config| config.observer = Some(observer));
    bench.put("f", "old").await;
    assert!(recording.superseded.lock().is_empty());
    let ino = bench.ino("f").await;
    let appending = OpenFlags {
        append: true,
        ..super::kit::WRITE
    };
    let fh = bench.fs.open(ino, appending).await.unwrap().fh;
    bench.write(fh, "+").await;
    bench.fs.fsync(fh).await.unwrap();
    bench.write(fh, "+").await;
    bench.fs.flush(fh).await.unwrap();
    // Nothing is published any more, and nothing replaced.
    bench.fs.flush(fh).await.unwrap();
    bench.fs.release(fh).await;
    let name = OsStr::new("f");
    bench.fs.unlink(Ino::ROOT, name).await.unwrap();
    assert_eq!(*recording.superseded.lock(), [3, 4]);
}
