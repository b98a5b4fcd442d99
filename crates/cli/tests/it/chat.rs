//! `panoply run` and `panoply chat` with the tiny language models of the crate `llm`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/fixtures").join(name)
}

/// The program's output for this standard input.
fn panoply(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_panoply"))
        .args(arguments)
        .env("PANOPLY_DEVICE", "cpu")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const GREEDY: [&str; 5] = ["--temperature", "0", "-n", "6", "--json"];

#[test]
fn each_line_of_standard_input_is_answered_and_the_cache_is_kept() {
    let model = fixture("chat.gguf");
    let chat = |input: &str| panoply(&[&["chat", model.to_str().unwrap()], &GREEDY[..]].concat(), input);
    let output = chat("hello world\n\nthe quick\n");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answers = lines(&output);
    assert_eq!(answers.len(), 2);
    assert_eq!((&answers[0]["reused_tokens"], &answers[0]["completion_tokens"]), (&0.into(), &6.into()));
    // The first question with its answer, which is computed but for its last token.
    let prompt = answers[0]["prompt_tokens"].as_u64().unwrap();
    // The template writes one more line feed before an answer that is still to come.
    assert!(answers[1]["reused_tokens"].as_u64().unwrap() >= prompt - 2, "{answers:?}");
    // The same first answer, which the reference has too.
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(fixture("chat.json")).unwrap()).unwrap();
    assert_eq!(prompt, golden["ids"].as_array().unwrap().len() as u64);
    // After a reset the conversation begins again.
    let again = lines(&chat("the quick\n/reset\nhello world\n"));
    assert_eq!((&again[1]["text"], &again[1]["prompt_tokens"]), (&answers[0]["text"], &answers[0]["prompt_tokens"]));
    let helped = chat("/help\n/nonsense\n/exit\nhello\n");
    let stderr = text(&helped.stderr);
    assert!(stderr.contains("/reset   forget") && stderr.contains("unknown command /nonsense"), "{stderr}");
    assert!(helped.stdout.is_empty());
}

#[test]
fn a_message_that_does_not_fit_is_refused_and_the_conversation_goes_on() {
    let model = fixture("chat.gguf");
    let long = "hello ".repeat(400);
    let input = format!("{long}\nhello world\n");
    let output = panoply(&[&["chat", model.to_str().unwrap()], &GREEDY[..]].concat(), &input);
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("the context 256 positions"), "{}", text(&output.stderr));
    assert_eq!(lines(&output).len(), 1);
}

#[test]
fn run_answers_with_a_system_message_and_continues_without_one() {
    let model = fixture("chat");
    let run = |more: &[&str], input: &str| {
        let output = panoply(&[&["run", model.to_str().unwrap()], &GREEDY[..], more].concat(), input);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_str::<Value>(&text(&output.stdout)).unwrap()
    };
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(fixture("chat.json")).unwrap()).unwrap();
    let prompt = |document: &Value| document["prompt_tokens"].as_u64().unwrap();
    let (plain, chat) = (run(&["hello world"], ""), run(&["--chat"], "hello world"));
    let system = run(&["--system", "the quick", "hello world"], "");
    assert_eq!(prompt(&chat), golden["ids"].as_array().unwrap().len() as u64);
    assert!(prompt(&plain) < prompt(&chat) && prompt(&chat) < prompt(&system));
    let whole = chat["text"].as_str().unwrap();
    let stop: String = whole.chars().skip(1).take(2).collect();
    let stopped = run(&["--chat", "hello world", "--stop", &stop], "");
    assert_eq!(stopped["text"].as_str().unwrap(), &whole[..whole.find(&stop).unwrap()]);
    assert_eq!(stopped["finish_reason"], "stop");
    let forced = run(&["--chat", "hello world", "--logit-bias", "50=1e9"], "");
    let texts = forced["text"].as_str().unwrap();
    assert_eq!(forced["completion_tokens"], 6);
    assert!(texts.len() >= 6 && texts.as_bytes().iter().all(|byte| *byte == texts.as_bytes()[0]), "{texts}");
}

#[test]
fn models_without_a_template_and_wrong_settings_are_one_sentence() {
    let plain = fixture("tiny-F16.gguf");
    for (arguments, expected) in [
        (vec!["chat", plain.to_str().unwrap()], "the model has no chat template"),
        (vec!["chat", "nowhere.gguf"], "cannot read nowhere.gguf"),
    ] {
        let output = panoply(&arguments, "hello\n");
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

/// Values out of range are usage errors: the model, which does not exist here, is not opened.
#[test]
fn sampling_parameters_out_of_range_are_usage_errors() {
    for (option, expected) in [
        ("--temperature=-1", "temperature -1 is not a finite number from 0 on"),
        ("--temperature=nan", "temperature NaN is not a finite number from 0 on"),
        ("--temperature=warm", "expected a number"),
        ("--top-p=2", "top-p 2 is not between 0 and 1"),
        ("--min-p=-0.5", "min-p -0.5 is not between 0 and 1"),
        ("--repetition-penalty=0", "repetition penalty 0 is not a positive number"),
        ("--presence-penalty=inf", "presence penalty inf is not a finite number"),
        ("--frequency-penalty=nan", "frequency penalty NaN is not a finite number"),
        ("--logit-bias=a=1", "`a` is not a token id"),
        ("--logit-bias=7=nan", "the logit bias of token 7 is NaN"),
    ] {
        for command in [&["run", "nowhere.gguf", "x"][..], &["chat", "nowhere.gguf"]] {
            let output = panoply(&[command, &[option]].concat(), "hello\n");
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{command:?} {option}: {stderr}");
            assert!(stderr.contains(expected), "{option}: {stderr}");
        }
    }
    let output = panoply(&["run", "nowhere.gguf", "x", "--temperature", "-1"], "");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn folders_without_a_model_are_named() {
    let folder = std::env::temp_dir().join(format!("panoply-cli-chat-folder-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let shown = |command: &str| {
        let more: &[&str] = match command {
            "run" => &["x"],
            "serve" => &["--port", "0"],
            _ => &[],
        };
        let output = panoply(&[&[command, folder.to_str().unwrap()], more].concat(), "");
        assert_eq!(output.status.code(), Some(1), "{command}");
        text(&output.stderr)
    };
    for command in ["run", "chat", "fit", "serve"] {
        let stderr = shown(command);
        let expected = "holds no model: neither a .gguf file nor config.json with .safetensors files";
        assert!(stderr.contains(expected), "{command}: {stderr}");
    }
    std::fs::write(folder.join("b.gguf"), "").unwrap();
    let stderr = shown("run");
    let file = |name: &str| folder.join(name).display().to_string();
    assert!(stderr.contains("has no config.json"), "{stderr}");
    assert!(stderr.contains(&format!("pass its GGUF file {}\n", file("b.gguf"))), "{stderr}");
    ["a.gguf", "d.gguf", "c.GGUF"].iter().for_each(|name| std::fs::write(folder.join(name), "").unwrap());
    let named = ["a.gguf", "b.gguf", "c.GGUF"].map(file).join(", ");
    let stderr = shown("run");
    assert!(stderr.contains(&format!("pass one of its 4 GGUF files, such as {named}\n")), "{stderr}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// An answer of hundreds of tokens is stopped by a signal at its first text; the next message is answered.
#[cfg(unix)]
#[test]
fn an_interrupt_stops_the_answer_and_not_the_program() {
    use std::io::Read;
    let model = fixture("chat.gguf");
    let tokens: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture("chat/tokenizer.json")).unwrap()).unwrap();
    let ends = ["<|end|>", "<|im_end|>"].map(|token| {
        let added = tokens["added_tokens"].as_array().unwrap();
        let id = &added.iter().find(|added| added["content"] == token).unwrap()["id"];
        format!("--logit-bias={id}=-inf")
    });
    let mut child = Command::new(env!("CARGO_BIN_EXE_panoply"))
        .args(["chat", model.to_str().unwrap(), &ends[0], &ends[1], "-n", "200"])
        .env("PANOPLY_DEVICE", "cpu")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"hello\n").unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    let interrupt = || Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt().success());
    stdin.write_all(b"/reset\nworld\n").unwrap();
    drop(stdin);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let counts: Vec<usize> =
        stderr.lines().filter_map(|line| line.split_once(" s, ")?.1.split_once(" tokens")?.0.parse().ok()).collect();
    assert!(counts.len() == 2 && counts[0] < 200 && counts[1] == 200, "{stderr}");
}
