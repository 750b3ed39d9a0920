/** Which series an expression of PromQL reads: enough of its grammar for rules and dashboards to be held against what is really exported. */

/** A metric that is read, and what its labels are held against. */
export interface Selector {
  readonly metric: string;
  readonly matchers: readonly Matcher[];
}

/** One matcher. */
export interface Matcher {
  readonly label: string;
  readonly operator: '=' | '!=' | '=~' | '!~';
  readonly value: string;
}

const WORDS = new Set(['and', 'or', 'unless', 'offset', 'bool', 'inf', 'nan']);
const GROUPED = /\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)/g;

/** Its selectors. */
export function toSelectors(expression: string): Selector[] {
  // A string could hold anything, and a range or a grouping holds no metric.
  const texts: string[] = [];
  const bare = expression
    .replaceAll(/"(?:[^"\\]|\\.)*"/g, (text) => `"${texts.push(JSON.parse(text) as string) - 1}"`)
    .replaceAll(/\[[^\]]*\]/g, '')
    .replaceAll(/\boffset\s+\d+[smhdwy]/g, '')
    .replaceAll(GROUPED, ' ');
  return [...bare.matchAll(/(?<![\w"$.])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\}|\()?/g)].flatMap(([, metric = '', after = '']) =>
    after === '(' || WORDS.has(metric.toLowerCase()) ? [] : [{ metric, matchers: toMatchers(after, texts) }],
  );
}

function toMatchers(braces: string, texts: readonly string[]): Matcher[] {
  return [...braces.matchAll(/([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"(\d+)"/g)].map(([, label = '', operator = '=', index = '']) => ({
    label,
    operator: operator as Matcher['operator'],
    value: texts[Number(index)] ?? '',
  }));
}

/** Labels that it groups or joins by. */
export function toGroupedLabels(expression: string): string[] {
  return [...expression.matchAll(GROUPED)]
    .flatMap(([, list = '']) => list.split(',').map((each) => each.trim()))
    .filter((each) => each !== '');
}
