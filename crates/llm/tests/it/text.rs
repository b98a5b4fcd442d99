//! Vocabularies, chat templates and stop rules against `tokenizers`, `sentencepiece` and `transformers`.

use std::collections::BTreeMap;

use panoply_llm::chat::{ChatTemplate, Message};
use panoply_llm::folder::Folder;
use panoply_llm::gguf::Gguf;
use panoply_llm::tokenizer::{SpecialTokens, Tokenizer};
use panoply_llm::{FinishReason, Model, ModelOptions, Prompt, Request, Sampling};
use serde_json::Value;

use crate::fixtures::path;

fn json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path(name)).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn messages(value: &Value) -> Vec<Message> {
    let text = |message: &Value, key: &str| message[key].as_str().unwrap().to_string();
    let message = |message| Message::new(text(message, "role"), text(message, "content"));
    value.as_array().unwrap().iter().map(message).collect()
}

fn open(name: &str) -> Model {
    Model::open(&path(name), &ModelOptions::default()).unwrap()
}

#[test]
fn vocabularies_of_gguf_give_the_ids_of_the_reference_and_the_text_back() {
    for name in ["gpt-2", "llama-bpe", "qwen2", "llama"] {
        let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path(&format!("text/{name}.gguf"))).unwrap()).unwrap();
        for case in json(&format!("text/{name}.json")).as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let expected = ids(&case["ids"]);
            // Where a special token is text, the text is less.
            if name == "llama" || !text.contains("<|") {
                assert_eq!(tokenizer.decode(&expected), text, "{name}");
            }
            assert_eq!(tokenizer.encode(text).unwrap(), expected, "{name}: {text:?}");
        }
    }
}

#[test]
fn control_tokens_in_a_text_are_tokens_and_a_space_follows_each() {
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path("text/llama.gguf")).unwrap()).unwrap();
    let alone = tokenizer.encode_as_is("the fox").unwrap();
    // llama.cpp puts the space of a text's beginning after special tokens too.
    let expected: Vec<u32> = [1].into_iter().chain(alone.clone()).chain([2]).chain(alone).collect();
    assert_eq!(tokenizer.encode("the fox</s>the fox").unwrap(), expected);
    assert_eq!(tokenizer.decode(&expected), "the fox the fox");
}

#[test]
fn a_tokenizer_json_gives_the_ids_and_the_text_of_the_reference() {
    let folder = Folder::open(&path("chat")).unwrap();
    let tokenizer = Tokenizer::from_folder(&folder, 1000).unwrap();
    for case in json("chat.json")["texts"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), ids(&case["ids"]), "{text:?}");
        assert_eq!(tokenizer.decode(&ids(&case["ids"])), case["decoded"].as_str().unwrap());
    }
    let error = Tokenizer::from_folder(&folder, 200).err().unwrap();
    assert!(error.message().contains("but the model has 200; they are not of one model"), "{error}");
}

#[test]
fn chat_templates_agree_with_transformers() {
    let special = SpecialTokens { bos: Some("<|begin|>".into()), eos: Some("<|end|>".into()) };
    let cases = json("text/chat.json");
    for case in cases.as_array().unwrap() {
        let template = ChatTemplate::new(case["template"].as_str().unwrap()).unwrap();
        let text = template.render(&messages(&case["messages"]), true, &special);
        match case["text"].as_str() {
            Some(expected) => assert_eq!(text.unwrap(), expected, "{}", case["name"]),
            None => {
                let error = text.unwrap_err();
                let refusal = ["System role not supported", "Conversation roles must alternate"];
                assert!(refusal.iter().any(|why| error.message().contains(why)), "{error}");
            }
        }
    }
}

#[test]
fn templates_that_loop_grow_or_read_are_errors() {
    let render = |source: &str| {
        let template = ChatTemplate::new(source)?;
        template.render(&[Message::new("user", "x")], true, &SpecialTokens::default())
    };
    let endless = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}";
    assert!(render(endless).unwrap_err().message().contains("loops or writes without end"));
    let growing = "{% set ns = namespace(x='a') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
    assert!(render(growing).unwrap_err().message().contains("loops or writes without end"));
    let recursive = "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}";
    assert!(render(recursive).is_err());
    assert!(render("{% include '/etc/passwd' %}").is_err());
    let error = render("{% if %}").unwrap_err();
    assert!(error.message().starts_with("the chat template fails at line 1: "), "{error}");
    let deep = "(".repeat(100_000);
    assert!(render(&format!("{{{{ {deep} }}}}")).is_err());
}

#[test]
fn both_worlds_answer_a_conversation_as_transformers_does() {
    let golden = json("chat.json");
    let conversation = messages(&golden["messages"]);
    for name in ["chat", "chat.gguf"] {
        let model = open(name);
        assert_eq!(model.tokenize(&Prompt::Chat(&conversation)).unwrap(), ids(&golden["ids"]), "{name}");
        let request = Request { max_tokens: Some(12), sampling: Sampling::greedy(), ..Request::chat(&conversation) };
        let mut generation = model.generate(&request).unwrap();
        let text = (&mut generation).collect::<Result<String, _>>().unwrap();
        let answer = ids(&golden["answer"]);
        let end = answer.iter().position(|id| model.tokenizer().is_end(*id)).unwrap_or(answer.len());
        assert_eq!(generation.tokens(), &answer[..end], "{name}");
        assert_eq!(text, model.tokenizer().decode(&answer[..end]));
    }
}

#[test]
fn every_file_that_names_an_end_of_text_is_heard() {
    for name in ["chat", "chat.gguf"] {
        let model = open(name);
        // `<|end|>` is the end of text of the configuration, `<|im_end|>` by its name.
        let expected: Vec<u32> =
            ["<|end|>", "<|im_end|>"].map(|token| model.tokenizer().encode_as_is(token).unwrap()[0]).into();
        let end: Vec<u32> = (0..model.config().vocab as u32).filter(|id| model.tokenizer().is_end(*id)).collect();
        assert_eq!(end, expected, "{name}");
    }
}

#[test]
fn next_request_of_a_conversation_computes_only_new_tokens() {
    let model = open("chat.gguf");
    let mut conversation = vec![Message::new("user", "hello world")];
    let mut session = model.session();
    let ask = |conversation: &[Message], session: &mut panoply_llm::Session| {
        let request = Request { max_tokens: Some(6), sampling: Sampling::greedy(), ..Request::chat(conversation) };
        let mut generation = model.generate_in(session, &request).unwrap();
        let text = (&mut generation).collect::<Result<String, _>>().unwrap();
        (text, generation.prompt_tokens(), generation.reused_tokens())
    };
    let (first, prompt, reused) = ask(&conversation, &mut session);
    assert_eq!(reused, 0);
    // All but the last generated token has been computed.
    assert_eq!(session.tokens().len(), prompt + 5);
    conversation.extend([Message::new("assistant", "the quick"), Message::new("user", "hello")]);
    let expected: usize = {
        let next = model.tokenize(&Prompt::Chat(&conversation)).unwrap();
        session.tokens().iter().zip(&next).take_while(|(x, y)| x == y).count()
    };
    // The template writes one more line feed before an answer that is still to come.
    assert!(expected >= prompt - 2, "{expected} of {prompt}");
    let (second, _, reused) = ask(&conversation, &mut session);
    assert_eq!(reused, expected);
    // The same text as without a cache, and the same again.
    assert_eq!(second, ask(&conversation, &mut model.session()).0);
    let (again, prompt, reused) = ask(&conversation, &mut session);
    assert_eq!((again, reused), (second, prompt - 1));
    session.reset();
    let (after_reset, _, reused) = ask(&conversation[..1], &mut session);
    assert_eq!((after_reset, reused), (first, 0));
}

#[test]
fn stop_strings_end_the_answer_and_biases_choose_tokens() {
    let model = open("chat.gguf");
    let conversation = [Message::new("user", "hello world")];
    let request = Request { max_tokens: Some(12), sampling: Sampling::greedy(), ..Request::chat(&conversation) };
    let answer = |request: &Request<'_>| {
        let mut generation = model.generate(request).unwrap();
        let text = (&mut generation).collect::<Result<String, _>>().unwrap();
        (text, generation.finish_reason(), generation.tokens().to_vec())
    };
    let (whole, _, tokens) = answer(&request);
    let characters: Vec<(usize, char)> = whole.char_indices().collect();
    let stop: String = characters[2..5].iter().map(|(_, character)| *character).collect();
    let (cut, reason, _) = answer(&Request { stop: vec![stop.clone()], ..request.clone() });
    assert_eq!((cut.as_str(), reason), (&whole[..whole.find(&stop).unwrap()], Some(FinishReason::Stop)));
    // The most likely first token forbidden, another forced.
    let forbidden = Request { logit_bias: BTreeMap::from([(tokens[0], f32::NEG_INFINITY)]), ..request.clone() };
    assert_ne!(answer(&forbidden).2[0], tokens[0]);
    let other = (tokens[0] + 1) % 200 + 10;
    let forced = Request { logit_bias: BTreeMap::from([(other, 1e6)]), ..request.clone() };
    assert!(answer(&forced).2.iter().all(|token| *token == other));
    let wrong = Request { logit_bias: BTreeMap::from([(1_000_000, 1.0)]), ..request };
    assert!(model.generate(&wrong).err().unwrap().message().contains("token 1000000"));
}

#[test]
fn logprobs_are_the_log_softmax_of_the_logits() {
    let model = open("chat.gguf");
    let request =
        Request { max_tokens: Some(3), sampling: Sampling::greedy(), logprobs: Some(4), ..Request::new("hello") };
    let mut generation = model.generate(&request).unwrap();
    (&mut generation).for_each(|piece| drop(piece.unwrap()));
    let (tokens, logprobs) = (generation.tokens().to_vec(), generation.logprobs().to_vec());
    assert_eq!(logprobs.len(), tokens.len());
    let mut all = model.tokenizer().encode("hello").unwrap();
    for (token, entry) in tokens.iter().zip(&logprobs) {
        let logits = model.logits(&mut model.new_cache(), &all, 0).unwrap();
        let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        let mut expected: Vec<(u32, f64)> =
            logits.iter().zip(0..).map(|(logit, id)| (id, f64::from(*logit) - sum.ln())).collect();
        expected.sort_by(|x, y| y.1.total_cmp(&x.1));
        assert_eq!((entry.token, entry.token, entry.top.len()), (*token, expected[0].0, 4));
        assert_eq!(entry.logprob, entry.top[0].1);
        for (entry, expected) in entry.top.iter().zip(&expected) {
            assert!(entry.0 == expected.0 && (f64::from(entry.1) - expected.1).abs() < 1e-4, "{entry:?} {expected:?}");
        }
        all.push(*token);
    }
}
