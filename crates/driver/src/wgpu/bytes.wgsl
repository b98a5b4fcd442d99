// Copies and fills at any byte offset; the API supports whole words only. Each work-item writes one word of the destination.
@group(0) @binding(0) var<uniform> launch: array<vec4<u32>, 2>;
@group(0) @binding(1) var<storage, read_write> target_words: array<u32>;
@group(0) @binding(2) var<storage, read_write> source_words: array<u32>;

@compute @workgroup_size(64)
fn bytes(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let begin = launch[0].x;
    let count = launch[0].y;
    let source = launch[0].z;
    let first_group = launch[0].w;
    let is_fill = launch[1].x != 0u;
    let word = (begin >> 2u) + (workgroup.x + first_group) * 64u + local.x;
    // Relative to the word of the region's first byte, so that nothing is negative.
    let base = (word - (begin >> 2u)) * 4u;
    let head = begin & 3u;
    if base >= head + count { return; }
    var value = 0u;
    var mask = 0u;
    for (var k = 0u; k < 4u; k++) {
        let at = base + k;
        if (at >= head) && (at < head + count) {
            let offset = at - head;
            var byte: u32;
            if is_fill {
                byte = launch[1][1u + ((offset >> 2u) & 1u)] >> ((offset & 3u) * 8u);
            } else {
                let from_byte = source + offset;
                byte = source_words[from_byte >> 2u] >> ((from_byte & 3u) * 8u);
            }
            value |= (byte & 0xffu) << (k * 8u);
            mask |= 0xffu << (k * 8u);
        }
    }
    if mask == 0xffffffffu {
        target_words[word] = value;
    } else {
        target_words[word] = (target_words[word] & ~mask) | value;
    }
}
