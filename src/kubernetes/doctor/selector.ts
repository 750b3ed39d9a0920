/** Matches labels against a selector, by the rules of apimachinery. */
import type { Selector } from './objects.ts';

type ObjectLabels = Readonly<Record<string, string>>;

/** An empty selector matches everything. */
export function fits(selector: Selector, labels: ObjectLabels = {}): boolean {
  const { matchLabels = {}, matchExpressions = [] } = selector;
  return (
    Object.entries(matchLabels).every(([key, value]) => find(labels, key) === value) &&
    matchExpressions.every((expression) => fitsExpression(expression, labels))
  );
}

/** Whether the selector matches everything. */
export function isEverything({ matchLabels = {}, matchExpressions = [] }: Selector): boolean {
  return Object.keys(matchLabels).length === 0 && matchExpressions.length === 0;
}

/** A selector may name `constructor`, which each object has. */
function find(labels: ObjectLabels, key: string): string | undefined {
  return Object.hasOwn(labels, key) ? labels[key] : undefined;
}

function fitsExpression(
  { key, operator, values = [] }: NonNullable<Selector['matchExpressions']>[number],
  labels: ObjectLabels,
): boolean {
  const value = find(labels, key);
  switch (operator) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    default:
      // An operator of a later version: a superfluous finding is better than a missing one.
      return true;
  }
}
