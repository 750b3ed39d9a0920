/** The rules of the project's prose: each one finds places in a passage and says what to write there instead. */
import type { Passage } from './passage.ts';
import { PROPER_NAMES, TERMS } from './words.ts';

/** A place where a rule is broken. */
export interface Finding {
  readonly rule: string;
  /** In the file. */
  readonly offset: number;
  /** The text in question, or the beginning of a long one. */
  readonly found: string;
  readonly instead: string;
}

interface Place {
  /** In the sentence. */
  readonly index: number;
  readonly found: string;
  readonly instead: string;
}

/** A rule, with samples that its test uses. */
export interface Rule {
  readonly name: string;
  readonly appliesTo: Passage['kind'] | 'both';
  readonly find: (sentence: string) => Place[];
  readonly bad: readonly string[];
  readonly good: readonly string[];
}

/** Words of one sentence; a code span, a link and a number count as one word each. */
const MAX_SENTENCE_WORDS = 40;

const termRules: readonly Rule[] = TERMS.map(({ find, instead, bad, good }) => {
  const pattern = new RegExp(`(?<![\\w-])(?:${find.replaceAll(' ', '\\s+')})(?![\\w-])`, 'gi');
  return {
    name: 'word',
    appliesTo: 'both',
    find: findMatches(pattern, instead),
    bad: [bad],
    good: good === undefined ? [] : [good],
  };
});

const sentenceLength: Rule = {
  name: 'sentence length',
  appliesTo: 'prose',
  find(sentence) {
    const count = sentence.match(/[\w\uFFFC]\S*/g)?.length ?? 0;
    // The allowed values of a setting are a list of any length, not a sentence.
    if (count <= MAX_SENTENCE_WORDS || !/[A-Za-z]/.test(sentence)) return [];
    return [
      {
        index: indexOfText(sentence),
        found: quoteStart(sentence),
        instead: `two sentences: ${count} words, ${MAX_SENTENCE_WORDS} are the most`,
      },
    ];
  },
  bad: [`${'word '.repeat(MAX_SENTENCE_WORDS)}end.`],
  good: [`${'word '.repeat(MAX_SENTENCE_WORDS - 1)}end.`, '\uFFFC, '.repeat(MAX_SENTENCE_WORDS + 1)],
};

/**
 * A clause as subject hides who acts. Questions, and "what to do" as a label, are fine. So is "Whether": in most cases it begins the
 * description of a flag, as in the API documentation of Kubernetes.
 */
const opening: Rule = {
  name: 'opening',
  appliesTo: 'prose',
  find(sentence) {
    const match = /^\W*(Who|Whom|Whose|What|That which|Those who|Nor|Neither does|Not so)\b(?! (?:to|if)\b)/.exec(sentence);
    if (match === null || /\?\W*$/.test(sentence)) return [];
    return [
      {
        index: indexOfText(sentence),
        found: quoteStart(sentence),
        instead: 'subject, verb, object: start with the thing that acts',
      },
    ];
  },
  bad: ['What is older is rejected.', 'Whose headers are trusted.', 'Who lacks the token gets 401.'],
  good: [
    'What happens then?',
    'What to do.',
    'Whether it is up.',
    'sidegate rejects older requests.',
    'Whatsoever is another word.',
  ],
};

const noun: Rule = {
  name: 'negated noun',
  appliesTo: 'both',
  find: findMatches(
    /(?<!\b[Tt]here )\b(?:is|are) no(?= (?!longer\b|more\b|less\b|fewer\b|later\b|other\b|effect\b)\w)/g,
    'is not a …, or: must be a …',
  ),
  bad: ['This is no address.'],
  good: ['There is no leader.', 'It is no longer used.', 'It is not an address.'],
};

const product: Rule = {
  name: 'product',
  appliesTo: 'message',
  find: findMatches(/(?<![\w-])the gates?(?![\w-])|\bgates differ\b/gi, 'sidegate, or checks'),
  bad: ['The upstream points to the gate itself.', 'route a is inside route b, whose gates differ'],
  good: ['The upstream points to sidegate itself.', 'The file is gate.yaml.'],
};

const exclamation: Rule = {
  name: 'exclamation mark',
  appliesTo: 'both',
  find: findMatches(/(?<=[a-z)])!(?=\s|$)/g, 'a full stop'),
  bad: ['It works!'],
  good: ['It works.', 'a != b'],
};

const headingCase: Rule = {
  name: 'heading case',
  appliesTo: 'heading',
  find(heading) {
    const words = [...heading.matchAll(/(?<![\w-])[A-Za-z][\w’'-]*/g)];
    return words
      .filter(({ 0: word, index }, place) => {
        const isFirst = place === 0 || /[.:?]\s*$/.test(heading.slice(0, index));
        return !isFirst && /^[A-Z][a-z]+(?:['’]s)?$/.test(word) && !PROPER_NAMES.has(word.replace(/['’]s$/, ''));
      })
      .map(({ 0: word, index }) => ({ index, found: word, instead: `${word.toLowerCase()} (sentence case)` }));
  },
  bad: ['## Rotate The Keys'],
  good: ['## Rotate the keys on Kubernetes', '## HTTP: Basic', '## Step 1: Install'],
};

export const RULES: readonly Rule[] = [...termRules, sentenceLength, opening, noun, product, exclamation, headingCase];

/** Everything in `passage` that breaks one of `rules`. */
export function findAll({ kind, start, text }: Passage, rules: readonly Rule[] = RULES): Finding[] {
  const findings: Finding[] = [];
  for (const [from, sentence] of kind === 'heading' ? [[0, text] as const] : splitSentences(text))
    for (const rule of rules) {
      if (rule.appliesTo !== 'both' && rule.appliesTo !== kind && !(rule.appliesTo === 'prose' && kind === 'message')) continue;
      for (const { index, found, instead } of rule.find(sentence))
        findings.push({ rule: rule.name, offset: start + from + index, found, instead });
    }
  return findings;
}

/** Sentences with their offsets. A period ends one only before a capital, a quote, code or removed markup, so "e.g. this" stays whole. */
function splitSentences(text: string): [offset: number, sentence: string][] {
  const sentences: [number, string][] = [];
  let from = 0;
  for (const { 0: end, index } of text.matchAll(
    /(?<![ei]\.[ge]|vs)[.!?:]["'”)]*\s+(?=["'“(]*[A-Z\uFFFC])|[.!?]\s{2,}|\n\s*\n|\n(?=\s*- )/g,
  )) {
    sentences.push([from, text.slice(from, index + end.length)]);
    from = index + end.length;
  }
  sentences.push([from, text.slice(from)]);
  return sentences;
}

function findMatches(pattern: RegExp, instead: string): Rule['find'] {
  return (sentence) =>
    [...sentence.matchAll(pattern)].map((match) => ({ index: match.index, found: match[0].replace(/\s+/g, ' '), instead }));
}

function indexOfText(sentence: string): number {
  return Math.max(sentence.search(/\S/), 0);
}

function quoteStart(sentence: string): string {
  const words = sentence
    .replace(/\uFFFC+/g, '`…`')
    .trim()
    .split(/\s+/);
  return words.length <= 6 ? words.join(' ') : `${words.slice(0, 6).join(' ')} …`;
}
