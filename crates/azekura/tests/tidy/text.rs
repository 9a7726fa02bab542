//! Rust source as three texts of equal shape: code, comments, and strings.
//!
//! [`split`] copies every byte to exactly one of them and puts a blank into the others, so that a
//! line number means the same in all three, and a word in a string is never taken for code. It
//! knows the lexical rules of comments, strings and characters, and nothing of grammar.

/// The parts of a Rust file; each has as many lines as the file.
pub(crate) struct Parts {
    /// What the compiler acts upon, without the contents of literals.
    pub(crate) code: String,
    /// Comments and docs, with their slashes.
    pub(crate) comments: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    Comment,
    Literal,
}

/// Takes `source` apart. Total: unfinished literals and comments run to the end.
pub(crate) fn split(source: &str) -> Parts {
    let bytes = source.as_bytes();
    let mut parts = Parts {
        code: String::new(),
        comments: String::new(),
    };
    let mut at = 0;
    while at < bytes.len() {
        let (part, len) = token(&bytes[at..]);
        for &byte in &bytes[at..(at + len).min(bytes.len())] {
            let shown = if byte.is_ascii() {
                char::from(byte)
            } else {
                '?'
            };
            let blank = if byte == b'\n' { '\n' } else { ' ' };
            parts
                .code
                .push(if part == Part::Code { shown } else { blank });
            parts
                .comments
                .push(if part == Part::Comment { shown } else { blank });
        }
        at += len;
    }
    parts
}

/// The part `rest` begins with, and for how many bytes; a word of code is one piece, so that the
/// `r` of `for` does not begin a raw string.
fn token(rest: &[u8]) -> (Part, usize) {
    if rest.starts_with(b"//") {
        return (Part::Comment, find(rest, b"\n", 2));
    }
    if rest.starts_with(b"/*") {
        return (Part::Comment, block_comment_len(rest));
    }
    if let Some(len) = raw_string_len(rest) {
        return (Part::Literal, len);
    }
    match rest[0] {
        b'"' => (Part::Literal, quoted_len(rest, b'"')),
        b'\'' if rest.get(1) == Some(&b'\\') || rest.get(2) == Some(&b'\'') => {
            (Part::Literal, quoted_len(rest, b'\''))
        }
        byte if is_word(byte) => {
            let len = rest.iter().take_while(|byte| is_word(**byte)).count();
            // `b"..."` and `b'x'`: the prefix is code, the literal follows as a token of its own.
            (Part::Code, len)
        }
        _ => (Part::Code, 1),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where `needle` begins at or after `from`, or the end.
fn find(rest: &[u8], needle: &[u8], from: usize) -> usize {
    let tail = rest.get(from..).unwrap_or_default();
    tail.windows(needle.len())
        .position(|w| w == needle)
        .map_or(rest.len(), |i| from + i)
}

fn block_comment_len(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted_len(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string_len(rest: &[u8]) -> Option<usize> {
    let prefix = [&b"br"[..], b"cr", b"r"]
        .into_iter()
        .find(|p| rest.starts_with(p))?
        .len();
    let hashes = rest[prefix..]
        .iter()
        .take_while(|byte| **byte == b'#')
        .count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close = [&b"\""[..], &b"#".repeat(hashes)].concat();
    Some((find(rest, &close, open + 1) + close.len()).min(rest.len()))
}

/// `code` with every `#[cfg(test)] mod name { ... }` blanked: what ships.
pub(crate) fn without_tests(code: &str) -> String {
    let mut shipped = code.to_owned();
    let mut from = 0;
    while let Some(found) = shipped[from..].find("#[cfg(test)]") {
        let start = from + found;
        from = start + 1;
        let Some(open) = shipped[start..].find(['{', ';']).map(|i| start + i) else {
            break;
        };
        let head = &shipped[start..open];
        if !head.split_whitespace().any(|word| word == "mod") || shipped[open..].starts_with(';') {
            continue;
        }
        let mut depth = 0;
        let end = shipped[open..].char_indices().find_map(|(i, c)| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            (depth == 0).then_some(open + i + 1)
        });
        let end = end.unwrap_or(shipped.len());
        let blank: String = shipped[start..end]
            .chars()
            .map(|c| if c == '\n' { c } else { ' ' })
            .collect();
        shipped.replace_range(start..end, &blank);
    }
    shipped
}

#[test]
fn literals_and_comments_are_told_from_code() {
    let source = "let a = \"// no\"; // yes\nlet b = r#\"\"x\"#; /* a /* b */ c */ let c: &'a u8 = '\\'';\nb'\"'; done";
    let parts = split(source);
    let comments: Vec<&str> = parts.comments.split_whitespace().collect();
    assert_eq!(comments.join(" "), "// yes /* a /* b */ c */");
    assert!(!parts.code.contains("no") && parts.code.contains("let c: &'a u8 ="));
    assert!(
        parts.code.ends_with("done"),
        "a quote in a byte literal opens no string"
    );
    assert_eq!(parts.code.lines().count(), source.lines().count());
}

#[test]
fn test_modules_are_not_shipped() {
    let code = "use a;\n#[cfg(test)]\nmod tests {\n fn b() { c }\n}\nfn d() {}";
    let shipped = without_tests(code);
    assert!(!shipped.contains('c') && shipped.contains("fn d()"));
    assert_eq!(shipped.lines().count(), code.lines().count());
}
