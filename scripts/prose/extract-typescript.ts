/** Reads the prose of a TypeScript file: its comments, and the string and template literals that are sentences. */
import { type Comment, parseSync, Visitor } from 'oxc-parser';
import { blank, blankCode, blankMatches, CODE, type Passage, type Range } from './passage.ts';

/** A literal with fewer words is a name, a unit or a piece of a protocol rather than a message. */
const MIN_WORDS = 3;
const WORD = /(?<!\S)[A-Za-z][a-z'’-]*[.,:;!?)]?(?!\S)/g;

export function extractTypeScript(file: string, source: string): Passage[] {
  const kind = /^(?:src|chart|quickstart)\//.test(file) ? 'message' : 'prose';
  const { program, comments } = parseSync(file, source);
  const passages: Passage[] = [];
  for (const [start, end] of joinLines(source, comments))
    passages.push({ kind: 'prose', start, text: blankComment(source.slice(start, end)) });
  // A literal of several lines is a page or a script: each of its lines is a text.
  const addMessage = (start: number, end: number, holes: readonly Range[]): void => {
    const text = blankLiteral(source.slice(start, end), holes);
    for (const { 0: line, index } of text.matchAll(/.+/g))
      if ((line.match(WORD) ?? []).length >= MIN_WORDS) passages.push({ kind, start: start + index, text: line });
  };
  new Visitor({
    Literal(node) {
      if (typeof node.value === 'string') addMessage(node.start, node.end, []);
    },
    TemplateLiteral(node) {
      // From `${` to `}`.
      const holes = node.quasis
        .slice(1)
        .map((quasi, index): Range => [(node.quasis[index]?.end ?? 0) - node.start, quasi.start - node.start]);
      addMessage(node.start, node.end, holes);
    },
  }).visit(program);
  return passages;
}

/** Line comments on consecutive lines are one text. */
function joinLines(source: string, comments: readonly Comment[]): Range[] {
  const joined: [number, number][] = [];
  let wasLine = false;
  for (const { type, start, end } of comments) {
    const last = joined.at(-1);
    if (last !== undefined && wasLine && type === 'Line' && /^\n[ \t]*$/.test(source.slice(last[1], start))) last[1] = end;
    else joined.push([start, end]);
    wasLine = type === 'Line';
  }
  return joined;
}

function blankComment(text: string): string {
  const withoutMarks = blankMatches(text, /^[ \t]*\/\/|^[ \t]*\/?\*+(?!\/)|\*\/$/gm, ' ');
  const withoutExamples = blankMatches(withoutMarks, /@example\s(?:[^@]|(?<=\S)@)*/g, ' ');
  return blankCode(blankMatches(withoutExamples, /\{@link [^}]*\}|@\w+(?: \{[^}]*\})?|biome-ignore [^:]*:/g, CODE));
}

/** Without quotes, escapes and interpolations. */
function blankLiteral(text: string, holes: readonly Range[]): string {
  const withoutHoles = blank(text, holes, CODE);
  const withoutQuotes = ` ${withoutHoles.slice(1, -1)} `;
  return blankCode(blankMatches(blankMatches(withoutQuotes, /\\`[^`]*\\`/g, CODE), /\\[^`]/g, ' '));
}
