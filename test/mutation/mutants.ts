/** Makes the mutants of a source file: small changes, each of which some test should notice. */
import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { parseSync } from 'oxc-parser';

/** One change of one file. */
export interface Mutant {
  readonly file: string;
  readonly line: number;
  /** The line as it stands, without its indentation. */
  readonly code: string;
  /** What kind of change it is. */
  readonly operator: string;
  /** From what to what, shortened: with file and code it names the mutant. */
  readonly mutation: string;
  readonly start: number;
  readonly end: number;
  readonly replacement: string;
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [key: string]: unknown;
}

type Change = readonly [operator: string, target: Pick<Node, 'start' | 'end'>, replacement: string];
type Mutator = (node: Node, text: (part: unknown) => string) => readonly Change[];

const BOUNDARY: Readonly<Record<string, string>> = { '<': '<=', '<=': '<', '>': '>=', '>=': '>' };
const EQUALITY: Readonly<Record<string, string>> = { '===': '!==', '!==': '===' };
const ARITHMETIC: Readonly<Record<string, string>> = { '+': '-', '-': '+', '*': '/', '/': '*', '%': '*' };
const LOGICAL: Readonly<Record<string, string>> = { '&&': '||', '||': '&&' };
const ASSIGNMENT: Readonly<Record<string, string>> = { '+=': '-=', '-=': '+=' };
/** Declarations and types: what is erased, or only names things. */
const SKIPPED = /^(?:ImportDeclaration|ExportAllDeclaration|TS(?!AsExpression|SatisfiesExpression|NonNullExpression))/;
const SHOWN = 60;

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
const isText = (value: unknown): boolean =>
  isNode(value) && (value.type === 'TemplateLiteral' || (value.type === 'Literal' && typeof value['value'] === 'string'));

const mutateBinary: Mutator = (node, text) => {
  const { left, right } = node;
  const operator = String(node['operator']);
  const other = BOUNDARY[operator] ?? EQUALITY[operator] ?? (isText(left) || isText(right) ? undefined : ARITHMETIC[operator]);
  if (other === undefined) return [];
  const kind = operator in BOUNDARY ? 'boundary' : operator in EQUALITY ? 'negation' : 'arithmetic';
  return [[kind, node, `${text(left)} ${other} ${text(right)}`]];
};

const mutateLogical: Mutator = (node, text) => {
  const other = LOGICAL[String(node['operator'])];
  // In brackets: the two bind differently.
  return other === undefined ? [] : [['logic', node, `((${text(node['left'])}) ${other} (${text(node['right'])}))`]];
};

const negateTest: Mutator = (node, text) => {
  const test = node['test'] as Node;
  // Comparisons are negated in their own place.
  return test.type === 'BinaryExpression' ? [] : [['negation', test, `!(${text(test)})`]];
};

const mutateLiteral: Mutator = (node) => {
  const { value } = node;
  if (typeof value === 'boolean') return [['boolean', node, String(!value)]];
  // Texts of several words are for people: how they say it is not the tests' business.
  if (typeof value !== 'string' || /\w \w/.test(value)) return [];
  return [['string', node, value === '' ? "'mutant'" : "''"]];
};

const mutateFunction: Mutator = (node) => {
  const { body, generator } = node;
  if (!isNode(body) || body.type !== 'BlockStatement' || generator === true) return [];
  if ((body['body'] as readonly Node[]).length < 2) return [];
  return [['early return', { start: body.start, end: body.start + 1 }, '{ return;']];
};

const MUTATORS: Readonly<Record<string, Mutator>> = {
  BinaryExpression: mutateBinary,
  LogicalExpression: mutateLogical,
  IfStatement: negateTest,
  ConditionalExpression: negateTest,
  WhileStatement: negateTest,
  Literal: mutateLiteral,
  AwaitExpression: (node, text) => [['await', node, text(node['argument'])]],
  ExpressionStatement: (node) => ('directive' in node && node['directive'] ? [] : [['statement', node, ';']]),
  AssignmentExpression: (node, text) => {
    const other = ASSIGNMENT[String(node['operator'])];
    return other === undefined ? [] : [['arithmetic', node, `${text(node['left'])} ${other} ${text(node['right'])}`]];
  },
  FunctionDeclaration: mutateFunction,
  FunctionExpression: mutateFunction,
  ArrowFunctionExpression: mutateFunction,
};

/** All mutants of a file, in the order of its text. */
export function findMutants(file: string, source: string): Mutant[] {
  const text = (part: unknown): string => (isNode(part) ? source.slice(part.start, part.end) : '');
  const mutants: Mutant[] = [];
  const visit = (node: Node): void => {
    if (SKIPPED.test(node.type)) return;
    for (const [operator, { start, end }, replacement] of MUTATORS[node.type]?.(node, text) ?? [])
      mutants.push(toMutant(file, source, { operator, start, end, replacement }));
    for (const child of childrenOf(node)) visit(child);
  };
  visit(parseSync(file, source).program as unknown as Node);
  return mutants.map(toUnique);
}

/** The same change at two places of one line gets a number, so that each can be named. */
function toUnique(mutant: Mutant, index: number, all: readonly Mutant[]): Mutant {
  const same = all.slice(0, index).filter(({ line, mutation }) => line === mutant.line && mutation === mutant.mutation);
  return same.length === 0 ? mutant : { ...mutant, mutation: `${mutant.mutation} (${same.length + 1})` };
}

function childrenOf(node: Node): Node[] {
  // A constructor must call `super`, a key is a name, and the message of an error is for people.
  if (node.type === 'MethodDefinition' && node['kind'] === 'constructor') return childrenOf(node['value'] as Node);
  if (node.type === 'NewExpression' && /Error$/.test(String((node['callee'] as Node)['name']))) return [];
  return Object.entries(node)
    .filter(([key]) => key !== 'key' || node['computed'] === true)
    .flatMap(([, value]) => (Array.isArray(value) ? value : [value]))
    .filter(isNode);
}

type Part = Pick<Mutant, 'operator' | 'start' | 'end' | 'replacement'>;

function toMutant(file: string, source: string, part: Part): Mutant {
  const before = source.slice(0, part.start);
  const line = before.split('\n').length;
  const code = source.split('\n')[line - 1]?.trim() ?? '';
  const shorten = (text: string): string => text.replace(/\s+/g, ' ').slice(0, SHOWN);
  const mutation = `${part.operator}: ${shorten(source.slice(part.start, part.end))} → ${shorten(part.replacement)}`;
  return { file, line, code, mutation, ...part };
}

/** The file with the change. */
export function applyMutant(source: string, { start, end, replacement }: Mutant): string {
  return source.slice(0, start) + replacement + source.slice(end);
}

/**
 * A sample that stays as it is while other code changes and files move: mutants are ranked by a hash of themselves, not by their place.
 */
export function sampleMutants(mutants: readonly Mutant[], count: number, seed: number): Mutant[] {
  const rank = ({ file, code, mutation }: Mutant): string =>
    createHash('sha256')
      .update(`${seed}\n${basename(file)}\n${code}\n${mutation}`)
      .digest('hex');
  const ranked = mutants.map((mutant) => ({ mutant, rank: rank(mutant) }));
  ranked.sort((a, b) => (a.rank < b.rank ? -1 : a.rank > b.rank ? 1 : 0));
  return ranked.slice(0, count).map(({ mutant }) => mutant);
}
