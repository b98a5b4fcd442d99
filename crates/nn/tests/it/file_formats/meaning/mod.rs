//! Tables, arrays and images are read like pandas, NumPy and Pillow read the same files.

use panoply_nn::data::reader::{self, Label, ReadOptions, Task};
use panoply_nn::data::{Targets, npz};
use panoply_tensor::{Device, Tensor};

use super::file;

/// Reads a table and returns the number of rows and the class names.
fn shape(name: &str, text: &str, label: &[&str]) -> (usize, Vec<String>) {
    let labels = label.iter().map(|label| label.to_string()).collect();
    let read =
        reader::open(&file(name, text.as_bytes()), &ReadOptions { label_columns: labels, ..ReadOptions::default() })
            .unwrap();
    (read.dataset.len(), read.class_names)
}

/// As `pandas.read_csv` reads them with the delimiter that `csv.Sniffer` detects.
#[test]
fn the_delimiter_gives_all_lines_the_same_number_of_cells() {
    let rows = |line: fn(usize) -> String| (0..30).map(line).collect::<String>();
    let cities = rows(|i| format!("{}\t{}\n", ["Lyon, FR", "Turin, IT", "Ghent, BE"][i % 3], i % 2));
    let two = vec!["0".to_string(), "1".to_string()];
    for name in ["cities.tsv", "cities.csv", "cities.txt"] {
        assert_eq!(shape(name, &cities, &[]), (30, two.clone()), "{name}");
    }
    assert_eq!(shape("headed.csv", &format!("city, land\tlabel\n{cities}"), &[]), (30, two.clone()));
    for delimiter in ["|", " ", "   ", ";"] {
        let rows: String = (0..30).map(|i| format!("{i}.5{delimiter}-2.25{delimiter}{}\n", i % 2)).collect();
        let head = format!("x{delimiter}z{delimiter}label\n");
        assert_eq!(shape("bars.csv", &(head.clone() + &rows), &[]), (30, two.clone()), "{delimiter:?}");
        assert_eq!(shape("bars.txt", &(head + &rows), &[]), (30, two.clone()), "{delimiter:?}");
    }
    // RFC 4180: quoted cells can contain line breaks and delimiters; classic Mac files end lines with carriage returns.
    let quoted = rows(|i| format!("\"type {}\nsecond, line\",{},{}\r\n", i % 3, i, ["a", "b"][i % 2]));
    let classes = vec!["a".to_string(), "b".to_string()];
    assert_eq!(shape("notes.csv", &format!("note,x,label\r\n{quoted}"), &[]), (30, classes.clone()));
    let mac = rows(|i| format!("{i},{}\r", ["a", "b"][i % 2]));
    assert_eq!(shape("mac.csv", &format!("x,label\r{mac}"), &[]), (30, classes));
    let message = |text: &str| {
        reader::open(&file("wrong.csv", text.as_bytes()), &ReadOptions::default()).unwrap_err().message().to_string()
    };
    assert!(message("x,label\n1,a\n\n2,\"b\n3,a\n").ends_with("wrong.csv:4: a quote is not closed"));
    assert!(
        message("x,label\r\n1,a\r\n\r\n2,b,c\r\n").ends_with("wrong.csv:4: 3 cells, expected 2 as in the first row")
    );
}

/// A header of numbers, as `DataFrame.to_csv` writes it, and label columns with such names.
#[test]
fn numeric_headers() {
    let rows: String = (0..30).map(|i| format!("{}.5,{}.25,{}\n", i, i % 7, i % 2)).collect();
    let two = vec!["0".to_string(), "1".to_string()];
    assert_eq!(shape("numbered.csv", &format!("0,1,2\n{rows}"), &[]), (30, two.clone()));
    assert_eq!(shape("numbered.csv", &format!("0,1,2\n{rows}"), &["2"]), (30, two.clone()));
    // A number that is not a valid column index is a name.
    assert_eq!(shape("years.csv", &format!("2001,2000,2002\n{rows}"), &["2002"]), (30, two));
    let whole: String = (0..30).map(|i| format!("{},{},{}\n", 10 + i, 90 - i, i % 2)).collect();
    assert_eq!(shape("whole.csv", &whole, &[]).0, 30, "no header");
}

/// `pandas.read_csv(index_col=0)`: the index is not a feature.
#[test]
fn index_columns_are_left_out() {
    let rows: String = (0..30).map(|i| format!("{},{}.5,{}\n", 2 * i, i % 7, ["a", "b"][i % 2])).collect();
    for (head, columns) in [(",x,label", 1), ("Unnamed: 0,x,label", 1), ("id,x,label", 2)] {
        let path = file("index.csv", format!("{head}\n{rows}").as_bytes());
        let read = reader::open(&path, &ReadOptions::default()).unwrap();
        assert_eq!(
            (read.dataset.num_features, read.assumptions.len()),
            (columns, 2 - columns),
            "{head}: {:?}",
            read.assumptions
        );
        let all = reader::open(&path, &ReadOptions { keep_columns: true, ..ReadOptions::default() }).unwrap();
        assert_eq!(all.dataset.num_features, 2, "{head}");
        assert_eq!(
            read.format.read(&path, &read.class_names, &ReadOptions::default()).unwrap().dataset.features,
            read.dataset.features
        );
    }
}

/// Labels match by value. New categories are ignored like `OneHotEncoder(handle_unknown="ignore")`, and a new label is unknown.
#[test]
fn labels_and_categories_match_by_value() {
    let rows: String = (0..30).map(|i| format!("{},{i},{}\n", ["red", "blue", "500"][i % 3], i % 2)).collect();
    let read =
        reader::open(&file("train.csv", format!("color,x,label\n{rows}").as_bytes()), &ReadOptions::default()).unwrap();
    assert_eq!(read.dataset.num_features, 3 + 1, "a number among categories is a category");
    let more = "color,x,label\nred,0.5,1.0\ngreen,1,0.0\n500,2,True\nblue,3,seven\nblue,4,\n";
    let again =
        read.format.read(&file("more.csv", more.as_bytes()), &read.class_names, &ReadOptions::default()).unwrap();
    let right = [Label::Class(1), Label::Class(0), Label::Class(1), Label::Unknown("seven".into())];
    assert_eq!(again.labels, right.map(Some).into_iter().chain([None]).collect::<Vec<_>>());
    assert_eq!(again.dataset.features[4..8], [0.0, 0.0, 0.0, 1.0], "green is not a known category");
    assert!(
        again.notes.len() == 1 && again.notes[0].contains("color: 1 of 5 cells") && again.notes[0].contains("green")
    );
    let mixed: String = (0..30).map(|i| format!("{i},{}\n", ["0", "1", "0.0", "1.0"][i % 4])).collect();
    assert_eq!(shape("mixed.csv", &format!("x,label\n{mixed}"), &[]), (30, vec!["0".to_string(), "1".to_string()]));
    let months: String = (0..30).map(|i| format!("{},{i},{}\n", i % 12 + 1, ["a", "b"][i % 2])).collect();
    let reading = ReadOptions { categorical: vec!["month".into()], ..ReadOptions::default() };
    let read = reader::open(&file("months.csv", format!("month,x,label\n{months}").as_bytes()), &reading).unwrap();
    assert_eq!(read.dataset.num_features, 12 + 1);
}

/// `pandas.read_csv(thousands=",")` and `str.rstrip("%")`.
#[test]
fn formatted_numbers() {
    let cells =
        [("45%", 45.0), ("\"1,234\"", 1234.0), ("$12.50", 12.5), ("-€3", -3.0), ("\"$1,234,567.5\"", 1234567.5)];
    let rows: String = cells.iter().map(|(cell, value)| format!("{cell},{value}.5\n").replace(".5.5", ".75")).collect();
    let read =
        reader::open(&file("people.csv", format!("share,price\n{rows}").as_bytes()), &ReadOptions::default()).unwrap();
    assert_eq!(read.dataset.features, cells.map(|(_, value)| value as f32));
    // Strings that only begin or end like such numbers are not numbers.
    let error =
        reader::open(&file("words.csv", b"share,price\n1,1.5\n\"12,34\",2.5\n3,3.5\n"), &ReadOptions::default());
    assert!(error.unwrap_err().message().ends_with("words.csv:3: share: `12,34` is not a finite number"));
}

/// As NumPy in f64: `x - x.mean()` before the cast keeps digits that f32 would drop.
#[test]
fn numbers_far_from_zero_keep_their_digits() {
    let x: Vec<f64> = (0..200).map(|i| f64::from(i * 37 % 200) * 0.001).collect();
    let rows: String = x.iter().map(|x| format!("{:.3},{:.3}\n", 1.7e9 + x, 1e9 + x)).collect();
    let path = file("far.csv", format!("when,y\n{rows}").as_bytes());
    let read = reader::open(&path, &ReadOptions::default()).unwrap();
    assert!(read.assumptions.is_empty(), "{:?}", read.assumptions);
    let Targets::Regression { values, .. } = &read.dataset.targets else { panic!("not a regression") };
    let again = read.format.read(&path, &[], &ReadOptions::default()).unwrap();
    assert_eq!(again.dataset.features, read.dataset.features);
    for (at, x) in x.iter().enumerate() {
        assert!((f64::from(read.dataset.features[at] - read.dataset.features[0]) - (x - 0.0)).abs() < 1e-6, "{at}");
        assert!((f64::from(values[at]) + again.offsets[0] - (1e9 + x)).abs() < 1e-6, "{at}");
        let Some(Label::Values(right)) = &again.labels[at] else { panic!("no label") };
        assert!((right[0] - (1e9 + x)).abs() < 1e-6, "labels are f64");
    }
    // A mixture of scales that no offset can represent is reported.
    let rows: String =
        (0..200).map(|i| format!("{},{}.5\n", if i % 2 == 0 { 0.0 } else { 1e12 + f64::from(i) }, i)).collect();
    let read = reader::open(&file("mix.csv", format!("x,y\n{rows}").as_bytes()), &ReadOptions::default()).unwrap();
    assert!(
        read.assumptions.len() == 1 && read.assumptions[0].contains("mix.csv: x: 101 distinct values"),
        "{:?}",
        read.assumptions
    );
}

/// Labels of any type are like `numpy.unique(y, return_inverse=True)`, and arrays have offsets like tables.
#[test]
fn labels_of_arrays_are_their_values() {
    Device::get("cpu").unwrap().scope(|| {
        let x: Vec<f64> = (0..6).map(|i| 1e9 + f64::from(i) * 0.01).collect();
        let open = |y: Tensor, task: Option<Task>| {
            let path = file("labels.npz", b"");
            let x = Tensor::from_slice(&x, [6, 1]);
            npz::save(&[("x".to_string(), x), ("y".to_string(), y)], &path).unwrap();
            (reader::open(&path, &ReadOptions { task, ..ReadOptions::default() }).unwrap(), path)
        };
        let bools = Tensor::from_slice(&[1i32, 0, 1, 0, 1, 0], [6]).gt(&Tensor::scalar(0i32));
        let signed = Tensor::from_slice(&[1i32, -1, 1, -1, 1, -1], [6]);
        let gaps = Tensor::from_slice(&[7u16, 999, 100, 7, 999, 100], [6]);
        let floats = Tensor::from_slice(&[0f64, 1.0, 2.0, 0.0, 1.0, 2.0], [6]);
        for (y, task, names) in [
            (bools, None, &["0", "1"][..]),
            (signed, None, &["-1", "1"]),
            (gaps, None, &["7", "100", "999"]),
            (floats, Some(Task::Classification), &["0", "1", "2"]),
        ] {
            let (read, path) = open(y, task);
            assert_eq!(read.class_names, names);
            let again = read.format.read(&path, &read.class_names, &ReadOptions::default()).unwrap();
            let want: Vec<Option<Label>> =
                read.dataset.labels().iter().map(|label| Some(Label::Class(*label))).collect();
            assert_eq!((again.labels, &again.dataset.features), (want, &read.dataset.features));
            assert!(
                (read.dataset.features[5] - read.dataset.features[0] - 0.05).abs() < 1e-6,
                "{:?}",
                read.dataset.features
            );
        }
    });
}

/// As in Pillow: `alpha` as a channel, `numpy.asarray` of 16-bit images, `ImageOps.exif_transpose`, and the formats that it reads.
#[test]
fn images_are_read_like_pillow() {
    use image::{GrayImage, ImageBuffer, ImageFormat, Luma, LumaA, Rgb, RgbImage, Rgba, RgbaImage};
    let folder = file("images.md", b"").with_file_name("images");
    let _ = std::fs::remove_dir_all(&folder);
    let place = |name: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    let open = |name: &str| reader::open(&folder.join(name), &ReadOptions::default()).unwrap();
    // Black icons whose shape is only in the alpha channel, in color and gray.
    for (at, kind) in ["a", "b"].iter().enumerate() {
        let alpha = |x: u32| if x as usize == at { 255u8 } else { 0 };
        RgbaImage::from_fn(3, 2, |x, _| Rgba([0, 0, 0, alpha(x)])).save(place(&format!("icons/{kind}/1.png"))).unwrap();
        let gray = ImageBuffer::from_fn(3, 2, |x, _| LumaA([0u8, alpha(x)]));
        gray.save(place(&format!("gray/{kind}/1.png"))).unwrap();
        // 16 bits around 2000.
        let deep = ImageBuffer::<Luma<u16>, _>::from_fn(3, 2, |x, _| Luma([2000 + 7 * x as u16 + at as u16]));
        deep.save(place(&format!("deep/{kind}/1.png"))).unwrap();
        for format in [ImageFormat::Bmp, ImageFormat::Gif, ImageFormat::Tiff, ImageFormat::WebP, ImageFormat::Png] {
            let ending = format.extensions_str()[0];
            let image = RgbImage::from_fn(3, 2, |x, _| Rgb([9 * x as u8, 50, 200 * at as u8]));
            image.save_with_format(place(&format!("kinds/{kind}/inner/{at}.{ending}")), format).unwrap();
        }
    }
    let icons = open("icons");
    assert_eq!(icons.dataset.example_shape, [4, 2, 3]);
    assert_eq!(icons.dataset.features[18..24], [1.0, 0.0, 0.0, 1.0, 0.0, 0.0], "the alpha channel of the first image");
    let gray = open("gray");
    assert_eq!((&gray.dataset.example_shape[..], &gray.dataset.features[6..9]), (&[2, 2, 3][..], &[1.0, 0.0, 0.0][..]));
    let deep = open("deep");
    assert_eq!(deep.dataset.features[..3], [2000.0, 2007.0, 2014.0].map(|level: f32| level / 65535.0));
    std::fs::write(place("kinds/a/inner/notes.pdf"), "no image").unwrap();
    let kinds = open("kinds");
    assert_eq!((kinds.dataset.len(), kinds.dataset.labels().iter().sum::<i32>()), (10, 5));
    assert!(
        kinds.assumptions.len() == 1 && kinds.assumptions[0].contains("kinds: 1 file (1 .pdf) skipped"),
        "{:?}",
        kinds.assumptions
    );
    // A network without an alpha channel gets images on a white background.
    GrayImage::from_pixel(3, 2, Luma([40])).save(place("opaque/a/1.png")).unwrap();
    GrayImage::from_pixel(3, 2, Luma([80])).save(place("opaque/b/1.png")).unwrap();
    let opaque = open("opaque");
    let seen = opaque.format.read(&folder.join("gray/a"), &opaque.class_names, &ReadOptions::default()).unwrap();
    assert_eq!(seen.dataset.features[..3], [0.0, 1.0, 1.0]);
    // Orientation 3 rotates by 180 degrees, 6 by 90 degrees clockwise.
    let photo = GrayImage::from_fn(16, 8, |x, y| Luma([if x < 8 && y < 4 { 250 } else { 5 }]));
    let mut jpeg = Vec::new();
    photo.write_to(&mut std::io::Cursor::new(&mut jpeg), ImageFormat::Jpeg).unwrap();
    for (orientation, size, bright) in [(1u8, [8, 16], [0, 0]), (3, [8, 16], [7, 15]), (6, [16, 8], [0, 7])] {
        let exif = [b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", &[orientation, 0, 0, 0, 0, 0, 0, 0][..]]
            .concat();
        let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
        let tagged = [&jpeg[..2], &[0xff, 0xe1], &length, &exif, &jpeg[2..]].concat();
        for kind in ["a", "b"] {
            std::fs::write(place(&format!("turned{orientation}/{kind}/1.jpg")), &tagged).unwrap();
        }
        let turned = open(&format!("turned{orientation}"));
        assert_eq!(turned.dataset.example_shape, [1, size[0], size[1]], "orientation {orientation}");
        let level = turned.dataset.features[bright[0] * size[1] + bright[1]];
        assert!(level > 0.9, "orientation {orientation}: {level}");
    }
    for part in ["split/train/a/1.png", "split/train/b/1.png", "split/test/a/1.png", "split/test/b/1.png"] {
        GrayImage::new(2, 2).save(place(part)).unwrap();
    }
    let error = reader::open(&folder.join("split"), &ReadOptions::default()).unwrap_err();
    assert!(
        error.message().contains("are splits of a data set, not classes") && error.to_string().contains("split/train"),
        "{error}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
