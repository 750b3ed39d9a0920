/** Reads the prose of the charts' files: comments, texts of rules, dashboards and schemas, messages of templates, and NOTES.txt. */
import { isScalar, Lexer, parseDocument, visit } from 'yaml';
import { blankCode, blankMatches, CODE, type Passage } from './passage.ts';

/** Keys whose values people read, in alerts, dashboards, schemas and policies. */
const TEXT_KEYS: ReadonlySet<string> = new Set(['summary', 'description', 'title', 'message', 'content']);
/** Tokens of the lexer that are not in the source: start of a document, flow error, start of a scalar. */
const LEXER_MARKS: ReadonlySet<string> = new Set(['\u0002', '\u0018', '\u001F']);
const ACTION = /\{\{-?[\s\S]*?-?\}\}/g;

/** YAML or JSON: consecutive comment lines as one text each, and the values of `TEXT_KEYS`. */
export function extractYaml(source: string): Passage[] {
  const passages = extractYamlComments(source);
  visit(parseDocument(source), {
    Pair(_, { key, value }) {
      if (!isScalar(key) || !TEXT_KEYS.has(String(key.value)) || !isScalar(value) || typeof value.value !== 'string') return;
      const [start, end] = value.range ?? [0, 0];
      passages.push({ kind: 'prose', start, text: blankValue(source.slice(start, end)) });
    },
  });
  return passages;
}

/** Without the header of a block scalar, quotes, escapes and template actions. */
function blankValue(text: string): string {
  const withoutMarks = blankMatches(blankMatches(text, /^[|>][+-]?\d?|^["']|["']$/g, ' '), /\\./g, ' ');
  return blankCode(blankMatches(withoutMarks, ACTION, CODE));
}

function extractYamlComments(source: string): Passage[] {
  const passages: Passage[] = [];
  let offset = 0;
  for (const token of new Lexer().lex(source)) {
    if (LEXER_MARKS.has(token)) continue;
    if (token.startsWith('#')) addComment(passages, source, offset, token);
    offset += token.length;
  }
  return passages;
}

function addComment(passages: Passage[], source: string, start: number, token: string): void {
  const text = blankCode(` ${token.slice(1)}`);
  const last = passages.at(-1);
  const end = (last?.start ?? 0) + (last?.text.length ?? 0);
  const between = source.slice(end, start);
  if (last === undefined || !/^\n[ \t]*$/.test(between)) passages.push({ kind: 'prose', start, text });
  else passages[passages.length - 1] = { ...last, text: last.text + between + text };
}

/** A Helm template: its comments, and the messages that it prints. */
export function extractTemplate(source: string): Passage[] {
  const passages: Passage[] = [];
  for (const { 0: action, index } of source.matchAll(ACTION)) {
    if (/^\{\{-?\s*\/\*/.test(action)) {
      const text = blankCode(blankMatches(action, /^\{\{-?\s*\/\*|\*\/\s*-?\}\}$/g, ' '));
      passages.push({ kind: 'prose', start: index, text });
    } else passages.push(...extractLiterals(action, index, /"(?:[^"\\]|\\.)*"/g));
  }
  const outside = blankMatches(source, ACTION, CODE);
  for (const match of outside.matchAll(/(?<=^[ \t]*)#(?: .*|)(?:\n[ \t]*#(?: .*|))*/gm))
    passages.push({ kind: 'prose', start: match.index, text: blankCode(blankMatches(match[0], /^[ \t]*#/gm, ' ')) });
  for (const match of outside.matchAll(/(?<=^[ \t]*(?:- )?(?:message|description): ).+$/gm))
    passages.push({ kind: 'prose', start: match.index, text: blankValue(match[0]) });
  for (const match of outside.matchAll(/^([ \t]*)(?:- )?messageExpression: [|>]-?\n(?:\1[ \t]+.*\n)+/gm))
    passages.push(...extractLiterals(match[0], match.index, /'(?:[^'\\]|\\.)*'/g));
  return passages;
}

/** String literals of three words or more. */
function extractLiterals(code: string, offset: number, literal: RegExp): Passage[] {
  const found = code.matchAll(literal);
  return [...found]
    .map((match): Passage => {
      const text = blankCode(blankMatches(` ${match[0].slice(1, -1)} `, /\\.|%[a-z]/g, CODE));
      return { kind: 'prose', start: offset + match.index, text };
    })
    .filter(({ text }) => /[a-z] [a-z]+ [a-z]/.test(text));
}

/** NOTES.txt: its paragraphs, and the messages of its actions; indented blocks are commands or YAML. */
export function extractNotes(source: string): Passage[] {
  const passages = extractTemplate(source);
  const outside = blankMatches(source, ACTION, CODE);
  for (const match of outside.matchAll(/(?:^(?! {4})[ \t]*\S.*\n?)+/gm))
    passages.push({ kind: 'prose', start: match.index, text: blankCode(match[0]) });
  return passages;
}
