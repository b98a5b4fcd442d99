//! Parser of the header of a `.npy` file: a Python dictionary, with the syntax that `ast.literal_eval` and `numpy.lib.format` accept.

use panoply_tensor::DType;

/// A header's contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub element: Element,
    /// True if the bytes of an element are in big-endian order.
    pub big_endian: bool,
    /// True if the first axis varies fastest.
    pub fortran_order: bool,
    pub dims: Vec<usize>,
}

/// An element type of NumPy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    Number(DType),
    /// Text of at most this many bytes, padded with zeros (`S6`).
    Bytes(usize),
    /// Text of at most this many characters of four bytes, padded with zeros (`U6`).
    Unicode(usize),
}

impl Element {
    /// Bytes of an element; `None` if they do not fit.
    pub fn bytes(self) -> Option<usize> {
        match self {
            Element::Number(dtype) => Some(dtype.bytes()),
            Element::Bytes(length) => Some(length),
            Element::Unicode(length) => length.checked_mul(4),
        }
    }
}

/// A value of the dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    Bool(bool),
    Int(usize),
    Tuple(Vec<Value>),
}

/// Keys of a header, all required. If a key is repeated, the last value counts.
const KEYS: [&str; 3] = ["descr", "fortran_order", "shape"];

/// Parses a header, or returns a description of the error.
pub(super) fn parse(text: &str) -> Result<Header, String> {
    let mut reader = Reader { rest: text };
    let [descr, order, shape] = reader.dictionary()?;
    if !reader.is_at_end() {
        return Err("its header continues after the dictionary".to_string());
    }
    let Value::Bool(fortran_order) = order else {
        return Err(format!("its fortran_order is {order:?}, neither True nor False"));
    };
    let (element, big_endian) = match descr {
        Value::Text(code) => element(&code)?,
        other => return Err(format!("element type {other:?} is not supported")),
    };
    let Value::Tuple(dims) = shape else { return Err("its shape is not a tuple".to_string()) };
    let dims = dims.into_iter().map(|dim| match dim {
        Value::Int(dim) => Ok(dim),
        other => Err(format!("its shape contains {other:?} instead of a length")),
    });
    let dims: Vec<usize> = dims.collect::<Result<_, _>>()?;
    // Both orders are the same if at most one axis is longer than 1.
    let fortran_order = fortran_order && dims.iter().filter(|dim| **dim > 1).count() > 1;
    Ok(Header { element, big_endian, fortran_order, dims })
}

/// The element type of a NumPy type string such as `<f4`, `f4`, `float32` or `<U6`, and whether its bytes are in big-endian order.
fn element(code: &str) -> Result<(Element, bool), String> {
    let (order, name) = match code.chars().next() {
        Some(order @ ('<' | '>' | '=' | '|')) => (order, &code[1..]),
        _ => ('=', code),
    };
    let big_endian = order == '>';
    let length = |kind: char| name.strip_prefix(kind)?.parse::<usize>().ok();
    if let Some(length) = length('S').or_else(|| length('a')) {
        return Ok((Element::Bytes(length), false));
    }
    if let Some(length) = length('U') {
        return Ok((Element::Unicode(length), big_endian));
    }
    // Only short names have an order before them.
    let named = |names: &[&str]| names.contains(&name) && (code == name || name.len() <= 2);
    match NAMES.iter().find(|(names, _)| named(names)) {
        Some((_, dtype)) => Ok((Element::Number(*dtype), big_endian && dtype.bytes() > 1)),
        None if name == "O" => {
            Err("its elements are Python objects; save it as `x.astype(str)` or `x.astype(float)`".to_string())
        }
        None => Err(format!("element type {code} is not supported; save it as `x.astype(\"float32\")`")),
    }
}

const NAMES: [(&[&str], DType); 12] = [
    (&["b1", "?", "bool"], DType::Bool),
    (&["i1", "b", "int8"], DType::I8),
    (&["i2", "h", "int16"], DType::I16),
    (&["i4", "i", "int32"], DType::I32),
    (&["i8", "q", "int64"], DType::I64),
    (&["u1", "B", "uint8"], DType::U8),
    (&["u2", "H", "uint16"], DType::U16),
    (&["u4", "I", "uint32"], DType::U32),
    (&["u8", "Q", "uint64"], DType::U64),
    (&["f2", "e", "float16", "half"], DType::F16),
    (&["f4", "f", "float32", "single"], DType::F32),
    (&["f8", "d", "float64", "double"], DType::F64),
];

/// The unparsed rest of a header.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    /// Returns true if only white space follows.
    fn is_at_end(&mut self) -> bool {
        self.rest.trim_start().is_empty()
    }

    /// Skips white space, and a character if it is next. Returns true if it was.
    fn takes(&mut self, char: char) -> bool {
        self.rest = self.rest.trim_start();
        let after = self.rest.strip_prefix(char);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn expects(&mut self, char: char) -> Result<(), String> {
        if self.takes(char) {
            return Ok(());
        }
        match self.rest.chars().next() {
            Some(found) => Err(format!("its header has {found:?} where {char:?} is expected")),
            None => Err(format!("its header ends where {char:?} is expected")),
        }
    }

    /// Parses a dictionary with the keys [`KEYS`] and no others. Returns the values in their order.
    fn dictionary(&mut self) -> Result<[Value; 3], String> {
        let mut values: [Option<Value>; 3] = [None, None, None];
        self.expects('{')?;
        while !self.takes('}') {
            let key = self.text()?;
            let at = KEYS.iter().position(|known| *known == key);
            let at = at.ok_or_else(|| format!("its header has the key `{key}`, which NumPy does not write"))?;
            self.expects(':')?;
            values[at] = Some(self.value()?);
            if !self.takes(',') {
                self.expects('}')?;
                break;
            }
        }
        let [descr, order, shape] = values;
        let missing = |key: &str| format!("its header has no {key}");
        Ok([
            descr.ok_or_else(|| missing(KEYS[0]))?,
            order.ok_or_else(|| missing(KEYS[1]))?,
            shape.ok_or_else(|| missing(KEYS[2]))?,
        ])
    }

    fn value(&mut self) -> Result<Value, String> {
        self.rest = self.rest.trim_start();
        match self.rest.chars().next() {
            Some('(') => self.tuple(),
            Some('0'..='9') => self.int(),
            Some('\'' | '"' | 'u') => self.text().map(Value::Text),
            Some('[') => Err("structured element types are not supported".to_string()),
            _ => {
                let word: String = self.rest.chars().take_while(|char| char.is_ascii_alphanumeric()).collect();
                self.rest = &self.rest[word.len()..];
                match word.as_str() {
                    "True" => Ok(Value::Bool(true)),
                    "False" => Ok(Value::Bool(false)),
                    _ => Err(format!("its header has `{word}` where a value is expected")),
                }
            }
        }
    }

    /// Parses a string in single or double quotes, without escapes.
    fn text(&mut self) -> Result<String, String> {
        self.rest = self.rest.trim_start();
        let start = self.rest.strip_prefix('u').unwrap_or(self.rest);
        let unclosed = || "its header has no quoted string where one is expected".to_string();
        let quote = start.chars().next().filter(|char| matches!(char, '\'' | '"')).ok_or_else(unclosed)?;
        let (text, after) = start[1..].split_once(quote).ok_or_else(unclosed)?;
        if text.contains(['\\', '\n']) {
            return Err(unclosed());
        }
        self.rest = after;
        Ok(text.to_string())
    }

    /// Parses an integer, with the suffix `L` of Python 2.
    fn int(&mut self) -> Result<Value, String> {
        let digits: String = self.rest.chars().take_while(char::is_ascii_digit).collect();
        self.rest = &self.rest[digits.len()..];
        self.rest = self.rest.strip_prefix(['L', 'l']).unwrap_or(self.rest);
        if digits.len() > 1 && digits.starts_with('0') {
            return Err(format!("its header has the number {digits}"));
        }
        digits.parse().map(Value::Int).map_err(|error| format!("its header has the number {digits}: {error}"))
    }

    /// Parses a tuple. A single value in parentheses is a tuple only with a comma.
    fn tuple(&mut self) -> Result<Value, String> {
        self.expects('(')?;
        let mut values = Vec::new();
        while !self.takes(')') {
            self.rest = self.rest.trim_start();
            // Nested tuples are not shapes, and recursion must be bounded.
            if self.rest.starts_with('(') {
                return Err("its shape has a tuple in it".to_string());
            }
            values.push(self.value()?);
            if !self.takes(',') {
                self.expects(')')?;
                return Ok(match values.len() {
                    1 => values.remove(0),
                    _ => Value::Tuple(values),
                });
            }
        }
        Ok(Value::Tuple(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dtype: DType, dims: &[usize]) -> Header {
        Header { element: Element::Number(dtype), big_endian: false, fortran_order: false, dims: dims.to_vec() }
    }

    /// Expected values as read by NumPy 2.4.
    #[test]
    fn headers_that_numpy_reads() {
        for (text, wanted) in [
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", of(DType::F32, &[2, 3])),
            ("{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (2, 3)}", of(DType::F32, &[2, 3])),
            ("{ 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2 , 3 , ) , }  \n", of(DType::F32, &[2, 3])),
            ("{'shape': (6,), 'fortran_order': False, 'descr': '=f4', 'shape': (3,)}", of(DType::F32, &[3])),
            ("{u'descr': u'f8', 'fortran_order': False, 'shape': (2L, 3L)}", of(DType::F64, &[2, 3])),
            ("{'descr': '|f2', 'fortran_order': False, 'shape': ()}", of(DType::F16, &[])),
            ("{'descr': '<i1', 'fortran_order': False, 'shape': (0,)}", of(DType::I8, &[0])),
            ("{'descr': '>u1', 'fortran_order': False, 'shape': (1,)}", of(DType::U8, &[1])),
            ("{'descr': '<b1', 'fortran_order': False, 'shape': (1,)}", of(DType::Bool, &[1])),
            ("{'descr': 'int64', 'fortran_order': False, 'shape': (1,)}", of(DType::I64, &[1])),
            ("{'descr': '?', 'fortran_order': False, 'shape': (1,)}", of(DType::Bool, &[1])),
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 6)}", of(DType::F32, &[1, 6])),
        ] {
            assert_eq!(parse(text), Ok(wanted), "{text}");
        }
        let header =
            |descr: &str| parse(&format!("{{'descr': '{descr}', 'fortran_order': True, 'shape': (2, 3)}}")).unwrap();
        assert!(header("<f4").fortran_order && !header("<f4").big_endian && header(">i2").big_endian);
        assert_eq!((header("|S7").element, header(">U3").element), (Element::Bytes(7), Element::Unicode(3)));
        assert!(header(">U3").big_endian && !header(">u1").big_endian);
    }

    #[test]
    fn headers_that_numpy_refuses() {
        let with = |order: &str, shape: &str| format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': {shape}}}");
        for text in [
            with("False1", "(6,)"),
            with("Falsely", "(6,)"),
            with("0", "(6,)"),
            with("False", "(6)"),
            with("False", "(6,,,)"),
            with("False", "(,)"),
            with("False", "(6, 'a')"),
            with("False", "(06,)"),
            with("False", "(-1,)"),
            with("False", "((6,),)"),
            with("False", "[6]"),
            with("False", "(99999999999999999999,)"),
            with("False", "(6,)") + " x",
            with("False", "(6,)").replace('}', ""),
            with("False", "(6,), 'more': 1"),
            "{'descr': '<f4', 'shape': (6,)}".to_string(),
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}".to_string(),
            "{'descr': '<f4'; 'fortran_order': False, 'shape': (6,)}".to_string(),
            "{'descr': '<f4, 'fortran_order': False, 'shape': (6,)}".to_string(),
            String::new(),
        ] {
            assert!(parse(&text).is_err(), "{text}");
        }
        assert!(parse(&with("False", "(6,)").replace("<f4", "<float32")).is_err());
        let error = parse(&with("False", "(6,)").replace("<f4", "|O")).unwrap_err();
        assert!(error.contains("Python objects"), "{error}");
        let error = parse(&with("False", "(6,)").replace("<f4", "<c8")).unwrap_err();
        assert!(error.contains("element type <c8 is not supported"), "{error}");
    }
}
