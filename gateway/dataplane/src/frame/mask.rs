//! Unmasking (RFC 6455 section 5.3), eight bytes at a time.

/// XOR `data` with `mask`, in place. `phase` is how many bytes of the payload came before.
pub fn unmask(data: &mut [u8], mask: [u8; 4], phase: usize) {
    let mut key = mask;
    key.rotate_left(phase & 3);
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut words = data.chunks_exact_mut(8);
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        word.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ wide).to_ne_bytes());
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}
