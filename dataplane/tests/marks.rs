//! State that a control plane leaves to the next one: a blob, and a mark for each message since.

mod driver;

use driver::{DataPlane, Plane};

/// Return the blob that the next control plane receives.
fn left(data_plane: &DataPlane) -> Vec<u8> {
    let mut plane = Plane::on(data_plane.connect());
    plane.send(1, &driver::hello());
    let attached = plane.wait_for(129);
    // Version, pid, attachment, readers, one port, and the blob's length.
    attached[21..].to_vec()
}

fn mark(plane: &mut Plane, mark: &[u8]) {
    let mut body = (mark.len() as u16).to_le_bytes().to_vec();
    body.extend(mark);
    plane.send(24, &body);
}

fn remember(plane: &mut Plane, blob: &[u8]) {
    let mut body = (blob.len() as u32).to_le_bytes().to_vec();
    body.extend(blob);
    plane.send(10, &body);
}

/// Return when all commands sent so far are carried out.
fn obeyed(plane: &mut Plane) {
    plane.send(12, &[]);
    plane.wait_for_count("publications", 2);
}

#[test]
fn a_mark_is_added_when_its_message_was_published() {
    let data_plane = DataPlane::start("marks");
    let (mut plane, _) = data_plane.attach();
    remember(&mut plane, b"before");
    mark(&mut plane, b",one");
    plane.publish(1, b"1");
    mark(&mut plane, b",two");
    plane.publish(2, b"2");
    // Of the third message the mark arrived, and not the `publish`.
    mark(&mut plane, b",three");
    obeyed(&mut plane);
    assert_eq!(left(&data_plane), b"before,one,two");
}

#[test]
fn what_is_remembered_replaces_the_marks_before_it() {
    let mut data_plane = DataPlane::start("remembered");
    let (mut plane, _) = data_plane.attach();
    mark(&mut plane, b"without a blob");
    plane.publish(1, b"1");
    remember(&mut plane, b"one");
    mark(&mut plane, b",two");
    plane.publish(2, b"2");
    obeyed(&mut plane);
    assert_eq!(left(&data_plane), b"one,two");
    data_plane.take_over();
    assert_eq!(left(&data_plane), b"one,two");
}

#[test]
fn marks_without_room_are_dropped() {
    let data_plane = DataPlane::start("room");
    let (mut plane, _) = data_plane.attach();
    let blob = vec![b'x'; (1 << 20) - 2];
    remember(&mut plane, &blob);
    mark(&mut plane, b"long");
    plane.publish(1, b"1");
    mark(&mut plane, b",2");
    plane.publish(2, b"2");
    obeyed(&mut plane);
    assert!(left(&data_plane) == [&blob[..], b",2"].concat());
}
