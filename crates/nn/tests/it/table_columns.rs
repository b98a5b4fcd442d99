//! Columns of tables and arrays: missing values, dates, decimal commas, encodings and labels. The values are those of pandas and NumPy.

#[cfg(feature = "parquet")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

#[cfg(feature = "parquet")]
use panoply_nn::data::reader::Task;
use panoply_nn::data::reader::{self, DataFormat, Imputation, LabeledData, MissingValues, ReadOptions, Replacement};
use panoply_nn::data::summary::ColumnKind;
use panoply_nn::data::{Dataset, DateOrder, ReadProgress, Targets, TextEncoding};
use panoply_tensor::Rng;

fn file(name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("panoply-columns-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn open(name: &str, bytes: impl AsRef<[u8]>, options: &ReadOptions) -> LabeledData {
    reader::open(&file(name, bytes), options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn imputation(data: &LabeledData, column: &str) -> Imputation {
    let DataFormat::Csv { imputation, .. } = &data.format else { panic!("not a table") };
    imputation[column].clone()
}

/// Twenty rows: of `age` three values are missing (15 %), of `city` one (5 %). `Series.median()` of the ages is 8.0, their mean
/// 8.705882352941176, and their mode 4.0.
const PEOPLE: &str = "age,city,kind\n1,Oslo,a\nNA,Bonn,b\n2,Oslo,a\n3,Bonn,b\n,Oslo,a\n4,Bonn,b\n4,Oslo,a\n5,?,b\n6,Oslo,a\n7,Bonn,b\n\
    8,Oslo,a\n9,Bonn,b\n10,Oslo,a\n11,Bonn,b\n12,Oslo,a\nNULL,Bonn,b\n14,Oslo,a\n15,Bonn,b\n16,Oslo,a\n21,Bonn,b\n";

#[test]
fn missing_values_are_replaced_and_marked() {
    let read = open("people.csv", PEOPLE, &ReadOptions::default());
    assert_eq!(imputation(&read, "age"), Imputation { value: Replacement::Number(8.0), indicator: true });
    // 5 % is not more than 5 %.
    let city = Imputation { value: Replacement::Category("Oslo".to_string()), indicator: false };
    assert_eq!(imputation(&read, "city"), city);
    let row = |at: usize| &read.dataset.features[at * 4..][..4];
    assert_eq!((read.dataset.len(), read.dataset.num_features), (20, 4));
    assert_eq!(
        (row(0), row(1), row(7)),
        (&[1.0, 0.0, 0.0, 1.0][..], &[8.0, 1.0, 1.0, 0.0][..], &[5.0, 0.0, 0.0, 1.0][..])
    );
    assert!(
        read.assumptions
            .iter()
            .any(|note| note.ends_with("age: 3 of 20 values are missing and become the median; a feature marks them"))
    );
    assert!(
        read.assumptions
            .iter()
            .any(|note| note.ends_with("city: 1 of 20 values are missing and become the most frequent value"))
    );
    // Prediction uses the values of training, also for a column that lacked none there.
    let more = file("more.csv", "city,age\nnan,100\nBonn,\n");
    let again = read.format.read(&more, &read.class_names, &ReadOptions::default()).unwrap();
    assert_eq!(again.dataset.features, [100.0, 0.0, 0.0, 1.0, 8.0, 1.0, 1.0, 0.0]);
}

/// `SimpleImputer(strategy=…, add_indicator=True).fit(x[:6])` of scikit-learn: 4, 5 and 2 for `age`, Oslo for `city`, and 3 for the column
/// that is complete. All eight rows would give 6, 170.8 and Bonn.
#[test]
fn replacements_of_a_split_are_learned_from_its_training_examples() {
    let text = "age,city,full,kind\n2,Oslo,1,a\nNA,Oslo,2,b\n2,?,3,a\n4,Bonn,3,b\n8,Oslo,9,a\n9,Bonn,30,b\n1000,Bonn,500,a\n,Bonn,500,b\n";
    for (policy, number, full) in
        [(MissingValues::Median, 4.0, 3.0), (MissingValues::Mean, 5.0, 8.0), (MissingValues::MostFrequent, 2.0, 3.0)]
    {
        let options = ReadOptions { missing: Some(policy), ..ReadOptions::default() };
        let mut read = open("leak.csv", text, &options);
        let before = read.dataset.clone();
        let (train, held) = read.split_last(0.25).unwrap();
        let value = |column| imputation(&read, column).value;
        assert_eq!(value("age"), Replacement::Number(number), "{policy:?}");
        assert_eq!(value("full"), Replacement::Number(full), "{policy:?}");
        assert_eq!(value("city"), Replacement::Category("Oslo".to_string()), "{policy:?}");
        // Age and its indicator, Bonn, Oslo and their indicator, and the complete column.
        let row = |data: &Dataset, at: usize| data.features[at * 6..][..6].to_vec();
        assert_eq!(row(&train, 1), [number as f32, 1.0, 0.0, 1.0, 0.0, 2.0], "{policy:?}");
        assert_eq!(row(&train, 2), [2.0, 0.0, 0.0, 1.0, 1.0, 3.0], "{policy:?}");
        assert_eq!(row(&held, 0), [1000.0, 0.0, 1.0, 0.0, 0.0, 500.0], "{policy:?}");
        assert_eq!(row(&held, 1), [number as f32, 1.0, 1.0, 0.0, 0.0, 500.0], "{policy:?}");
        assert_eq!((train.len(), held.len(), &read.dataset), (6, 2, &before));
        // Prediction uses the same values.
        let more = file("leak-more.csv", "age,city,full\n,,\n");
        let again = read.format.read(&more, &read.class_names, &options).unwrap();
        assert_eq!(again.dataset.features, [number as f32, 1.0, 0.0, 1.0, 1.0, full as f32], "{policy:?}");
    }
    // Rows of sequences, padded to the longest: the training sequences a and b have 1, 2 and 6, the median is 2.
    let text = "id,x,kind\na,1,u\na,,u\nb,2,v\nb,6,v\nb,,v\nc,50,u\nc,,u\nd,70,v\n";
    let options = ReadOptions { sequence_column: Some("id".to_string()), ..ReadOptions::default() };
    let mut read = open("leak-sequences.csv", text, &options);
    let (train, held) = read.split_last(0.5).unwrap();
    assert_eq!(train.features, [1.0, 0.0, 2.0, 1.0, 0.0, 0.0, 2.0, 0.0, 6.0, 0.0, 2.0, 1.0]);
    assert_eq!(held.features, [50.0, 0.0, 2.0, 1.0, 0.0, 0.0, 70.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    // Numbers far from zero have an offset, and a column without a value in training has none to learn.
    let text = "day,kind\n1700000001,a\n,b\n1700000003,a\n1700000008,b\n1700000900,a\n1700000901,b\n";
    let mut read = open("leak-offset.csv", text, &ReadOptions::default());
    let (train, _) = read.split_last(0.34).unwrap();
    // Features are differences from the offset in f32.
    let Replacement::Number(day) = imputation(&read, "day").value else { panic!("a number") };
    assert!((day - 1_700_000_003.0).abs() < 1e-4, "{day}");
    assert_eq!(train.features[2], train.features[4]);
    let mut read = open("leak-empty.csv", "x,kind\n,a\n,b\n3,a\n4,b\n", &ReadOptions::default());
    let (train, held) = read.split_last(0.5).unwrap();
    assert_eq!((&train.features[..], &held.features[..]), (&[0.0, 1.0, 0.0, 1.0][..], &[3.0, 0.0, 4.0, 0.0][..]));
    // Random splits and those by groups divide as before.
    let rows: String =
        (0..40).map(|at| format!("{},{},{}\n", ["", "1", "2"][at % 3], at / 4, ["a", "b"][at % 2])).collect();
    let groups = ReadOptions { group_column: Some("team".to_string()), ..ReadOptions::default() };
    let mut read = open("leak-groups.csv", format!("x,team,kind\n{rows}"), &groups);
    let (data, named) = (read.dataset.clone(), read.groups.clone().unwrap());
    let seeded = || Rng::seed_from_u64(5);
    for (own, other) in [
        (read.train_test_split(0.3, &mut seeded()), data.train_test_split(0.3, &mut seeded())),
        (read.split_groups(0.3, &mut seeded()), data.split_groups(&named, 0.3, &mut seeded())),
    ] {
        let (own, other) = (own.unwrap(), other.unwrap());
        assert_eq!((&own.0.targets, &own.1.targets), (&other.0.targets, &other.1.targets));
    }
}

#[test]
fn missing_values_by_policy() {
    let with = |missing| ReadOptions { missing: Some(missing), ..ReadOptions::default() };
    for (policy, value) in
        [(MissingValues::Mean, 8.705_882_352_941_176), (MissingValues::Median, 8.0), (MissingValues::MostFrequent, 4.0)]
    {
        let read = open("people.csv", PEOPLE, &with(policy));
        assert_eq!(imputation(&read, "age").value, Replacement::Number(value), "{policy:?}");
    }
    let dropped = open("people.csv", PEOPLE, &with(MissingValues::Drop));
    let lines = [2, 4, 5, 7, 8, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21];
    assert_eq!(dropped.dataset.row_numbers.as_deref(), Some(&lines[..]), "lines of the file");
    assert_eq!((dropped.dataset.len(), dropped.dataset.num_features), (16, 3), "`dropna` leaves 16 rows");
    assert!(
        dropped.assumptions[0].ends_with("4 of 20 rows have missing values and are left out"),
        "{:?}",
        dropped.assumptions
    );
    let error = reader::open(&file("people.csv", PEOPLE), &with(MissingValues::Error)).unwrap_err();
    assert!(error.message().ends_with("people.csv:3: age: the value is missing"), "{error}");
    // A target that is missing is not invented.
    let text = "x,kind\n1,a\n2,\n3,b\n4,a\n";
    let error = reader::open(&file("targets.csv", text), &ReadOptions::default()).unwrap_err();
    assert!(error.message().ends_with("targets.csv:3: kind: the target is missing"), "{error}");
    assert_eq!(open("targets.csv", text, &with(MissingValues::Drop)).dataset.len(), 3);
    // A column without any value is not used as a feature.
    let empty = open("empty.csv", "x,z,kind\n1,,a\n2,NA,b\n3,,a\n", &ReadOptions::default());
    assert_eq!(empty.dataset.features, [1.0, 2.0, 3.0]);
    assert!(empty.assumptions.iter().any(|note| note.ends_with("z: no row has a value; the column is left out")));
}

/// `pandas.read_csv(sep=";", decimal=",", thousands=".")`, and `Timestamp.timestamp()` of the dates.
#[test]
fn decimal_commas_and_dates() {
    let text = "price;day;kind\n1.234,5;2024-02-29;a\n-0,25;1970-01-02;b\n1.000;2024-02-29 12:30:00;a\n";
    let read = open("german.csv", text, &ReadOptions::default());
    let DataFormat::Csv { decimal_comma: true, offsets, .. } = &read.format else { panic!("{:?}", read.format) };
    assert!(offsets.is_empty(), "the days are far apart");
    let days = [1_709_164_800.0f32, 86_400.0, 1_709_209_800.0];
    assert_eq!(read.dataset.features, [1234.5, days[0], -0.25, days[1], 1000.0, days[2]]);
    assert!(read.assumptions.iter().any(|note| note.contains("decimal commas")), "{:?}", read.assumptions);
    // Alone, 1,234 would be a group of thousands: the model remembers the mark.
    let more = file("more.csv", "price;day\n1,234;1970-01-01\n");
    let again = read.format.read(&more, &read.class_names, &ReadOptions::default()).unwrap();
    assert_eq!(again.dataset.features, [1.234, 0.0]);
    let points = open("points.csv", "price;kind\n1,234;a\n2;b\n3.5;a\n", &ReadOptions::default());
    let DataFormat::Csv { decimal_comma: false, .. } = points.format else { panic!("3.5 has a decimal point") };
}

/// `pandas.to_datetime(column, format=…)`, and `Timestamp.timestamp()` of the dates.
#[test]
fn dates_in_other_orders() {
    let seconds = [1_735_603_200.0f64, 1_706_745_600.0, 1_709_164_800.0]; // 2024-12-31, 2024-02-01, 2024-02-29
    for (order, cells) in [
        (DateOrder::DayMonthYearPoints, ["31.12.2024", "1.2.2024", "29.02.2024"]),
        (DateOrder::DayMonthYearSlashes, ["31/12/2024", "01/02/2024", "29/02/2024"]),
        (DateOrder::MonthDayYearSlashes, ["12/31/2024", "02/01/2024", "2/29/2024"]),
        (DateOrder::DayMonthYearDashes, ["31-12-2024", "01-02-2024", "29-02-2024"]),
        (DateOrder::MonthNameDayYear, ["Dec 31 2024", "Feb 01 2024", "February 29 2024"]),
        (DateOrder::DayMonthNameYear, ["31 Dec 2024", "1 Feb 2024", "29 february 2024"]),
    ] {
        let [a, b, c] = cells;
        // More than 5 % are missing, so that a feature marks them.
        let text = format!("day,kind\n{a},x\n{b},y\n,x\n{c},y\n");
        let read = open("days.csv", &text, &ReadOptions::default());
        let DataFormat::Csv { date_orders, categories, offsets, .. } = &read.format else { panic!("not a table") };
        assert_eq!((date_orders["day"], categories.len()), (order, 0), "{a}");
        let offset = offsets.get("day").copied().unwrap_or(0.0);
        let of = |seconds: f64| (seconds - offset) as f32;
        let features = |row: usize| &read.dataset.features[row * 2..][..2];
        assert_eq!(
            [features(0), features(1), features(3)],
            [&[of(seconds[0]), 0.0], &[of(seconds[1]), 0.0], &[of(seconds[2]), 0.0]],
            "{a}"
        );
        assert_eq!(features(2), [of(seconds[2]), 1.0], "the median");
        // The model remembers the order, also of dates that alone would be ambiguous; other dates are in the order year, month, day.
        let stored = serde_json::to_string(&read.format).unwrap();
        let format: DataFormat = serde_json::from_str(&stored).unwrap();
        let more = file("more-days.csv", format!("day\n{b}\n2024-02-29\n"));
        let again = format.read(&more, &read.class_names, &ReadOptions::default()).unwrap();
        assert_eq!(again.dataset.features, [of(seconds[1]), 0.0, of(seconds[2]), 0.0], "{a}");
        let error = format.read(&file("words.csv", "day\nsoon\n"), &[], &ReadOptions::default()).unwrap_err();
        assert!(error.message().contains("words.csv:2: day: `soon` is not a date such as "), "{error}");
        // A model without the entry reads them as before, as text.
        let old: DataFormat = serde_json::from_str(&stored.replace("date_orders", "other")).unwrap();
        assert!(old.read(&more, &read.class_names, &ReadOptions::default()).is_err(), "{a}");
        let summary = panoply_nn::data::summary::summarize(&file("days.csv", &text), &ReadOptions::default()).unwrap();
        let day = &summary.columns[0];
        assert_eq!((day.kind, day.missing, day.distinct, day.range), (ColumnKind::Date, 1, 3, None));
        assert_eq!(day.date_range, Some((b.to_string(), a.to_string())));
    }
    // Points of dates are not groups of digits.
    let german =
        open("german-days.csv", "price;day;kind\n1.234,5;31.12.2024;a\n-0,25;01.02.2024;b\n", &Default::default());
    let DataFormat::Csv { date_orders, decimal_comma: true, .. } = &german.format else {
        panic!("{:?}", german.format)
    };
    assert_eq!(date_orders["day"], DateOrder::DayMonthYearPoints);
    // Orders that contradict each other, and one that the options forbid, are categories.
    for (cells, options) in [
        (["31/12/2024", "12/31/2024"], ReadOptions::default()),
        (["31.12.2024", "2024-12-31"], ReadOptions::default()),
        (["31.12.2024", "30.12.2024"], ReadOptions { categorical: vec!["day".into()], ..ReadOptions::default() }),
    ] {
        let text = format!("day,kind\n{0},x\n{1},y\n{0},x\n", cells[0], cells[1]);
        let read = open("mixed.csv", text, &options);
        let DataFormat::Csv { date_orders, categories, .. } = &read.format else { panic!("not a table") };
        assert_eq!((date_orders.len(), categories["day"].len()), (0, 2), "{cells:?}");
        assert!(!read.assumptions.iter().any(|note| note.contains("ambiguous")), "{:?}", read.assumptions);
    }
}

/// Days and months up to 12 in either order.
#[test]
fn ambiguous_dates_are_categories() {
    let rows: Vec<String> = (0..80).map(|at| format!("{:02}/{:02}/2024,{at}\n", 1 + at % 8, 1 + at / 8)).collect();
    let text = format!("day,size\n{}", rows.concat());
    let read = open("ambiguous.csv", &text, &ReadOptions::default());
    let DataFormat::Csv { date_orders, categories, .. } = &read.format else { panic!("not a table") };
    assert_eq!((date_orders.len(), categories["day"].len()), (0, 64));
    let note = "column day: 64 different dates fit several orders and are categories; write them as YYYY-MM-DD";
    assert!(read.assumptions.iter().any(|told| told.ends_with(note)), "{:?}", read.assumptions);
    let summary = panoply_nn::data::summary::summarize(&file("ambiguous.csv", &text), &ReadOptions::default()).unwrap();
    assert_eq!((summary.columns[0].kind, &summary.columns[0].date_range), (ColumnKind::Category, &None));
}

/// `text.encode(encoding)` in Python; UTF-16 has a byte order mark or none.
#[test]
fn encodings_of_tables() {
    let text = "city,kind\nMálaga,a\nÅrhus,b\nMálaga,a\n";
    let latin: Vec<u8> = text.chars().map(|letter| letter as u8).collect();
    let error = reader::open(&file("latin.csv", &latin), &ReadOptions::default()).unwrap_err();
    assert!(error.message().ends_with("latin.csv:2: byte 0xe1 is not UTF-8"), "{error}");
    assert!(error.to_string().contains("--encoding latin1"), "{error}");
    let utf16 = |order: fn(u16) -> [u8; 2], mark: &str| -> Vec<u8> {
        mark.encode_utf16().chain(text.encode_utf16()).flat_map(order).collect()
    };
    let with = |name| ReadOptions { encoding: TextEncoding::from_name(name), ..ReadOptions::default() };
    for (bytes, options) in [
        (latin, with("latin1")),
        (utf16(u16::to_le_bytes, "\u{feff}"), ReadOptions::default()),
        (utf16(u16::to_be_bytes, "\u{feff}"), ReadOptions::default()),
        (utf16(u16::to_le_bytes, ""), ReadOptions::default()),
        (utf16(u16::to_be_bytes, ""), with("utf-16be")),
    ] {
        let read = open("city.csv", &bytes, &options);
        let DataFormat::Csv { categories, .. } = &read.format else { panic!("not a table") };
        assert_eq!(categories["city"], ["Málaga", "Århus"], "{options:?}");
    }
    assert!(TextEncoding::from_name("klingon").is_none());
}

/// Free text keeps the file readable: the most frequent words are categories, all others none of them.
#[test]
fn identifiers_and_free_text() {
    let rows: String = (0..80).map(|at| format!("{at},person {at},{},{}\n", at % 7, ["a", "b"][at % 2])).collect();
    let read = open("ids.csv", format!("id,name,x,kind\n{rows}"), &ReadOptions::default());
    assert_eq!(read.dataset.num_features, 1 + 64 + 1);
    let is_noted = |part: &str| read.assumptions.iter().any(|note| note.contains(part));
    assert!(is_noted("id: it counts the rows; `--drop-columns \"id\"` leaves it out"), "{:?}", read.assumptions);
    assert!(is_noted("name: each of its 80 rows has another word"), "{:?}", read.assumptions);
    let groups = ReadOptions { group_column: Some("x".to_string()), ..ReadOptions::default() };
    let read = open("ids.csv", format!("id,name,x,kind\n{rows}"), &groups);
    assert_eq!(read.dataset.num_features, 1 + 64, "the groups are not features");
    assert_eq!(read.groups.unwrap(), (0..80).map(|at| at % 7).collect::<Vec<u32>>());
}

fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// `numpy.load` of the same bytes, and `argmax(axis=1)` of one-hot rows.
#[test]
fn labels_of_arrays() {
    let folder = std::env::temp_dir().join(format!("panoply-labels-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let x: Vec<u8> = [1.0f64, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0, 8.0].iter().flat_map(|x| x.to_be_bytes()).collect();
    std::fs::write(folder.join("x.npy"), npy(">f8", "True", "(4, 2)", &x)).unwrap();
    let labels = |y: Vec<u8>| {
        std::fs::write(folder.join("y.npy"), y).unwrap();
        let read = reader::open(&folder.join("x.npy"), &ReadOptions::default()).unwrap();
        assert_eq!(read.dataset.features, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        (read.class_names, read.dataset.targets)
    };
    let classes =
        |labels: &[i32], num_classes| Targets::Classes { labels: labels.to_vec(), num_classes, labels_per_example: 1 };
    let texts: Vec<u8> = ["no", "ja", "no", "ja"].concat().chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
    let (names, targets) = labels(npy("<U2", "False", "(4,)", &texts));
    assert_eq!((names, targets), (vec!["ja".to_string(), "no".to_string()], classes(&[1, 0, 1, 0], 2)));
    let (_, targets) = labels(npy("|u1", "False", "(4, 3)", &[0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 0, 0]));
    assert_eq!(targets, classes(&[2, 0, 1, 0], 3), "one-hot rows");
    let floats: Vec<u8> = [1.0f32, 0.0, 1.0, 0.0].iter().flat_map(|y| y.to_le_bytes()).collect();
    assert_eq!(labels(npy("<f4", "False", "(4,)", &floats)).1, classes(&[1, 0, 1, 0], 2), "whole floats");
    let floats: Vec<u8> = [1.5f32, 0.0, 1.0, 0.0].iter().flat_map(|y| y.to_le_bytes()).collect();
    assert!(matches!(labels(npy("<f4", "False", "(4,)", &floats)).1, Targets::Regression { .. }));
}

/// Training parses columns at once, prediction parses cell by cell: both give the same features, also for rows in several parts of the
/// table, with dropped rows, indicators and numbers that are divided by a power of ten. The progress of both ends at 1.
#[test]
fn features_of_training_and_prediction_are_the_same() {
    let mut text = String::from("x,tiny,far,city,y\n");
    for row in 0..10_000u32 {
        let x = if row % 9 == 0 { String::new() } else { format!("{}.{:03}", row % 97, row % 1000) };
        let city = ["Oslo", "Bonn", "Lyon", "NA"][row as usize % 4];
        text += &format!("{x},{}e-40,{},{city},{}\n", row % 13, 1_000_000_000 + row, f64::from(row) / 7.0);
    }
    for missing in [None, Some(MissingValues::Drop), Some(MissingValues::Mean)] {
        let told = Arc::new(Mutex::new(Vec::new()));
        let fractions = told.clone();
        let progress = ReadProgress::new(move |fraction| fractions.lock().unwrap().push(fraction));
        let options = ReadOptions { missing, progress, ..ReadOptions::default() };
        let path = file("both.csv", &text);
        let read = reader::open(&path, &options).unwrap();
        let most = |told: &mut Vec<f64>| told.drain(..).fold(0.0f64, f64::max);
        assert_eq!(most(&mut told.lock().unwrap()), 1.0);
        let predicted = read.format.read(&path, &[], &options).unwrap().dataset;
        assert_eq!(most(&mut told.lock().unwrap()), 1.0);
        let width = read.dataset.num_features;
        assert_eq!(predicted.num_features, width);
        let bits = |row: &[f32]| row.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let kept: Vec<usize> = match missing {
            Some(MissingValues::Drop) => (0..10_000).filter(|row| row % 9 != 0 && row % 4 != 3).collect(),
            _ => (0..10_000).collect(),
        };
        assert_eq!(read.dataset.len(), kept.len());
        for (at, row) in kept.iter().enumerate() {
            let [trained, seen] =
                [(&read.dataset, at), (&predicted, *row)].map(|(data, at)| &data.features[at * width..][..width]);
            assert_eq!(bits(trained), bits(seen), "row {row} with {missing:?}");
        }
    }
    // A number beyond f32 is an error that names its cell.
    let error = reader::open(&file("large.csv", "x,y\n1,0.5\n1e300,1.5\n-1e-3,2.5\n"), &ReadOptions::default());
    assert!(error.is_ok(), "a column of huge numbers is divided by a power of ten: {error:?}");
}

/// Columns of every type of a Parquet file, which pyarrow wrote, are those of the same values as text.
#[cfg(feature = "parquet")]
#[test]
fn columns_with_types_are_those_of_the_same_text() {
    let fixture = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let read = |name: &str, labels: &[&str], task: Option<Task>| {
        let label_columns = labels.iter().map(|label| label.to_string()).collect();
        reader::open(&fixture(name), &ReadOptions { label_columns, task, ..ReadOptions::default() }).unwrap()
    };
    for (labels, task) in [
        (&["label"][..], None),
        (&["int16"], Some(Task::Classification)),
        (&["int16"], Some(Task::Regression)),
        (&["float32"], None),
        (&["uint32", "float16"], None),
    ] {
        let (typed, text) = (read("types.parquet", labels, task), read("types.csv", labels, task));
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        assert_eq!(bits(&typed.dataset.features), bits(&text.dataset.features), "{labels:?}");
        assert_eq!((&typed.dataset.targets, &typed.class_names), (&text.dataset.targets, &text.class_names));
        let DataFormat::Csv { categories, offsets, scales, task, .. } = &typed.format else { panic!() };
        let DataFormat::Csv { categories: words, offsets: centers, scales: divisors, task: kind, .. } = &text.format
        else {
            panic!()
        };
        assert_eq!((categories, scales, task), (words, divisors, kind), "{labels:?}");
        let near = |(name, offset): (&String, &f64)| (offset - centers[name]).abs() <= 1e-12 * offset.abs();
        assert!(offsets.len() == centers.len() && offsets.iter().all(near), "{offsets:?} {centers:?}");
        assert_eq!(typed.missing, text.missing);
    }
    let (typed, text) = (fixture("types.parquet"), fixture("types.csv"));
    let summary = |path: &Path| panoply_nn::data::summary::summarize(path, &ReadOptions::default()).unwrap();
    for (typed, text) in summary(&typed).columns.iter().zip(&summary(&text).columns) {
        assert_eq!((typed.missing, typed.distinct), (text.missing, text.distinct), "{}", typed.name);
        // As text, dates and times are seconds since 1970. The dates are `datetime(1970, 1, 1) + timedelta(seconds=…)`.
        let dates = match typed.name.as_str() {
            "date" => ("1969-12-31", "2022-01-08"),
            "s" | "ms" | "us" => ("1969-12-31 23:59:59", "2100-01-01"),
            "ns" => ("1969-12-31 23:59:59.000000250", "2100-01-01"),
            name => {
                assert_eq!((typed.kind, &typed.date_range), (text.kind, &None), "{name}");
                continue;
            }
        };
        let dates = Some((dates.0.to_string(), dates.1.to_string()));
        assert_eq!((typed.kind, typed.range, &typed.date_range), (ColumnKind::Date, None, &dates), "{}", typed.name);
    }
    // Each row is a prediction of its own, with the label in its last column.
    let names = &read("types.csv", &["label"], None);
    let known = |path: &Path| names.format.read(path, &names.class_names, &ReadOptions::default()).unwrap();
    assert_eq!(known(&typed).labels, known(&text).labels);
}
