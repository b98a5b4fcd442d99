//! Detection of other file formats by their first bytes, with instructions to get a safetensors file.

/// A format that is not safetensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    /// Name with an article.
    pub name: &'static str,
    /// Instructions to get a safetensors file.
    pub way: &'static str,
}

const TORCH: Foreign = Foreign {
    name: "a torch.save file",
    way: "convert it in Python: `safetensors.torch.save_file(torch.load(path, map_location=\"cpu\", weights_only=True), \"model.safetensors\")`",
};
const NUMPY: Foreign = Foreign {
    name: "a NumPy file",
    way: "convert it in Python: `safetensors.numpy.save_file(dict(numpy.load(\"arrays.npz\")), \"model.safetensors\")`",
};
const ZIP: Foreign = Foreign { name: "a ZIP archive", way: "extract it first" };
const HDF5: Foreign = Foreign {
    name: "an HDF5 file, such as Keras writes",
    way: "read its arrays with h5py and write them with `safetensors.numpy.save_file`",
};
const GGUF: Foreign = Foreign {
    name: "a GGUF file",
    way: "use the safetensors files that it was made from; its quantized blocks cannot be read",
};
const LFS: Foreign = Foreign { name: "a Git LFS pointer, not the file itself", way: "run `git lfs pull`" };
const GZIP: Foreign = Foreign { name: "compressed with gzip", way: "decompress it with `gunzip`" };
const PACKED: Foreign = Foreign { name: "a compressed file (zstd, xz or bzip2)", way: "decompress it first" };
const TAR: Foreign = Foreign { name: "a tar archive", way: "extract it first" };
const ONNX: Foreign = Foreign {
    name: "an ONNX file",
    way: "it cannot be loaded as a model; use the model file that `panoply export` read",
};
const INDEX: Foreign =
    Foreign { name: "the index of a sharded model", way: "use the safetensors files that its `weight_map` lists" };
const JSON: Foreign = Foreign { name: "a JSON document", way: "use the safetensors file that it belongs to" };
const HTML: Foreign = Foreign { name: "a web page", way: "download the file itself" };
const TEXT: Foreign = Foreign { name: "a text file", way: "use a safetensors file; `panoply train` takes data" };
const EMPTY: Foreign = Foreign { name: "empty", way: "use another copy" };

/// Returns the format of a file that is not a safetensors file, if its first bytes identify it.
pub(super) fn foreign(bytes: &[u8]) -> Option<Foreign> {
    let begins = |start: &[u8]| bytes.starts_with(start);
    let head = &bytes[..bytes.len().min(4096)];
    let holds = |part: &[u8]| head.windows(part.len()).any(|window| window == part);
    let at = |offset: usize, part: &[u8]| bytes.get(offset..).is_some_and(|rest| rest.starts_with(part));
    Some(match bytes {
        [] => EMPTY,
        [b'P', b'K', 3 | 5, 4 | 6, ..] if holds(b"data.pkl") || holds(b"/version") => TORCH,
        [b'P', b'K', 3 | 5, 4 | 6, ..] if holds(b".npy") => NUMPY,
        [b'P', b'K', 3 | 5, 4 | 6, ..] => ZIP,
        // A pickle of protocol 2 to 5, which includes the legacy format of torch.save.
        [0x80, 2..=5, ..] => TORCH,
        [0x1f, 0x8b, ..] => GZIP,
        _ if begins(b"GGUF") || begins(b"GGML") => GGUF,
        _ if begins(b"\x89HDF\r\n\x1a\n") => HDF5,
        _ if begins(b"\x93NUMPY") => NUMPY,
        _ if begins(b"version https://git-lfs") => LFS,
        _ if begins(&[0x28, 0xb5, 0x2f, 0xfd]) || begins(b"BZh") || begins(b"\xfd7zXZ\0") => PACKED,
        _ if at(257, b"ustar") => TAR,
        // The IR version, then the name of the producer.
        [0x08, 1..=64, 0x12, length, rest @ ..] if rest.get(..*length as usize).is_some_and(<[u8]>::is_ascii) => ONNX,
        _ => of_text(bytes)?,
    })
}

/// Returns the format of a text file.
fn of_text(bytes: &[u8]) -> Option<Foreign> {
    let head = &bytes[..bytes.len().min(1 << 16)];
    // The last character can be cut off.
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && bytes.len() > head.len() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let plain = text.chars().all(|char| !char.is_control() || matches!(char, '\n' | '\r' | '\t'));
    // Fewer bytes than a safetensors header has are ambiguous.
    if !plain || bytes.len() < 8 {
        return None;
    }
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let lower = text.get(..text.len().min(15)).unwrap_or_default().to_ascii_lowercase();
    Some(match text.chars().next() {
        Some('{' | '[') if text.contains("\"weight_map\"") => INDEX,
        Some('{' | '[') => JSON,
        Some('<') if lower.starts_with("<!doctype html") || lower.starts_with("<html") => HTML,
        _ => TEXT,
    })
}
