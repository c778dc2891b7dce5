//! Several processes in one directory.

use super::*;

const SIZE: usize = 2 * BLOCK;

#[test]
fn two_at_once_do_not_see_each_other() {
    let first = Bench::new(MB);
    first.fill("one", SIZE);
    let second = first.beside();
    assert_eq!(second.present("one", SIZE), 0);
    for i in 0..60 {
        second.fill(&format!("object-{i}"), SIZE);
    }
    second.fill("one", SIZE);
    second.volume().forget(&object("one"));
    second.settle();
    assert_eq!(first.present("one", SIZE), 2);
    assert_eq!(first.figures().entries, 1);
    first.assert_bounded();
}

#[test]
fn the_next_one_uses_what_both_have_left() {
    let mut first = Bench::new(MB);
    let mut second = first.beside();
    first.fill("one", SIZE);
    second.fill("two", SIZE);
    first.close();
    second.close();
    // The second starts first this time.
    second.reopen();
    assert_eq!(second.present("one", SIZE), 2);
    assert_eq!(second.present("two", SIZE), 2);
    first.reopen();
    assert_eq!(first.figures().entries, 0);
    assert_eq!(du(&first.config.dir.join("gcsmount-blocks/1")), 0);
}

#[test]
fn what_is_inherited_is_within_the_limit() {
    let mut first = Bench::new(MB);
    let mut others = [first.beside(), first.beside()];
    for bench in [&first].into_iter().chain(&others) {
        bench.fill(&format!("object-{bench:p}"), 40 * BLOCK);
    }
    first.close();
    others.iter_mut().for_each(Bench::close);
    first.reopen();
    first.assert_bounded();
    assert_eq!(first.figures().entries, 1);
}
