/** Converts shapes to CEL expressions, for the API server's own admission policies. */
import { isEach, isList, isPlaceholder, isText, isWhen, type Shape, type ShapeMap } from '../src/kubernetes/injector/sidecar.ts';

/** The CEL expressions for a shape's placeholders. */
export interface CelPlaceholders {
  /** By name: an expression, and whether it is a number, which must be converted for text. */
  readonly values: Readonly<Record<string, { readonly expression: string; readonly isNumber?: true }>>;
  readonly conditions: Readonly<Record<string, string>>;
  /** By name: a list, and the placeholders of its entries, each of which is bound to `entry`. */
  readonly lists: Readonly<Record<string, { readonly expression: string; readonly values: CelPlaceholders['values'] }>>;
}

/** Formats a string literal with as few escapes as possible. */
export function celText(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'").replaceAll('\n', '\\n')}'`;
}

/** Converts the shape to an expression. Objects and lists contain `dyn`, because CEL requires one type for their values. */
export function toCel(shape: Shape, placeholders: CelPlaceholders): string {
  if (typeof shape === 'string') return celText(shape);
  if (typeof shape !== 'object') return String(shape);
  if (isPlaceholder(shape)) return placeholders.values[shape.$value]?.expression ?? fail(shape.$value);
  if (isText(shape))
    return shape.$text.map((part) => (typeof part === 'string' ? celText(part) : asText(part.$value, placeholders))).join(' + ');
  if (isList(shape)) return shape.length === 0 ? '[]' : toList(shape, placeholders);
  return `{${Object.entries(shape as ShapeMap)
    .map(([key, inner]) => toEntry(key, inner, placeholders))
    .join(', ')}}`;
}

function toEntry(key: string, shape: Shape, placeholders: CelPlaceholders): string {
  if (!isWhen(shape)) return `${celText(key)}: dyn(${toCel(shape, placeholders)})`;
  const condition = placeholders.conditions[shape.$when] ?? fail(shape.$when);
  return `?${celText(key)}: ${condition} ? optional.of(dyn(${toCel(shape.then, placeholders)})) : optional.none()`;
}

/** Joins runs of plain items, conditional items and repeated items by `+`. */
function toList(shapes: readonly Shape[], placeholders: CelPlaceholders): string {
  const parts: string[] = [];
  let plain: string[] = [];
  const flush = (): void => {
    if (plain.length > 0) parts.push(`[${plain.join(', ')}]`);
    plain = [];
  };
  for (const shape of shapes) {
    if (!isWhen(shape) && !isEach(shape)) {
      plain.push(`dyn(${toCel(shape, placeholders)})`);
      continue;
    }
    flush();
    if (isWhen(shape))
      parts.push(
        `(${placeholders.conditions[shape.$when] ?? fail(shape.$when)} ? [dyn(${toCel(shape.then, placeholders)})] : [])`,
      );
    else {
      const list = placeholders.lists[shape.$each] ?? fail(shape.$each);
      const values = { ...placeholders.values, ...list.values };
      parts.push(`${list.expression}.map(entry, dyn(${toCel(shape.of, { ...placeholders, values })}))`);
    }
  }
  flush();
  return parts.join(' + ');
}

function asText(name: string, placeholders: CelPlaceholders): string {
  const placeholder = placeholders.values[name] ?? fail(name);
  return placeholder.isNumber === true ? `string(${placeholder.expression})` : placeholder.expression;
}

function fail(name: string): never {
  throw new Error(`the placeholder ${name} has no CEL`);
}
