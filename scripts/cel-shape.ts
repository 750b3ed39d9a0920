/** Prints shapes as CEL expressions, for the API server's own admission policies. */
import { isEach, isHole, isList, isText, isWhen, type Shape, type ShapeMap } from '../src/kubernetes/injector/shape.ts';

/** What the holes of a shape are in CEL. */
export interface CelHoles {
  /** By name: an expression, and whether it is a number, which text needs to know. */
  readonly values: Readonly<Record<string, { readonly expression: string; readonly isNumber?: true }>>;
  readonly conditions: Readonly<Record<string, string>>;
  /** By name: a list, and what the holes of an entry are, which is bound to `entry`. */
  readonly lists: Readonly<Record<string, { readonly expression: string; readonly values: CelHoles['values'] }>>;
}

/** A string literal without escapes but those that are needed. */
export function celText(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'").replaceAll('\n', '\\n')}'`;
}

/** The shape as an expression; mappings and lists hold `dyn`, as CEL wants one type of their values. */
export function toCel(shape: Shape, holes: CelHoles): string {
  if (typeof shape === 'string') return celText(shape);
  if (typeof shape !== 'object') return String(shape);
  if (isHole(shape)) return holes.values[shape.$value]?.expression ?? fail(shape.$value);
  if (isText(shape))
    return shape.$text.map((part) => (typeof part === 'string' ? celText(part) : asText(part.$value, holes))).join(' + ');
  if (isList(shape)) return shape.length === 0 ? '[]' : toList(shape, holes);
  return `{${Object.entries(shape as ShapeMap)
    .map(([key, inner]) => toEntry(key, inner, holes))
    .join(', ')}}`;
}

function toEntry(key: string, shape: Shape, holes: CelHoles): string {
  if (!isWhen(shape)) return `${celText(key)}: dyn(${toCel(shape, holes)})`;
  const condition = holes.conditions[shape.$when] ?? fail(shape.$when);
  return `?${celText(key)}: ${condition} ? optional.of(dyn(${toCel(shape.then, holes)})) : optional.none()`;
}

/** Runs of plain items, conditional and repeated ones, joined by `+`. */
function toList(shapes: readonly Shape[], holes: CelHoles): string {
  const parts: string[] = [];
  let plain: string[] = [];
  const flush = (): void => {
    if (plain.length > 0) parts.push(`[${plain.join(', ')}]`);
    plain = [];
  };
  for (const shape of shapes) {
    if (!isWhen(shape) && !isEach(shape)) {
      plain.push(`dyn(${toCel(shape, holes)})`);
      continue;
    }
    flush();
    if (isWhen(shape))
      parts.push(`(${holes.conditions[shape.$when] ?? fail(shape.$when)} ? [dyn(${toCel(shape.then, holes)})] : [])`);
    else {
      const list = holes.lists[shape.$each] ?? fail(shape.$each);
      const values = { ...holes.values, ...list.values };
      parts.push(`${list.expression}.map(entry, dyn(${toCel(shape.of, { ...holes, values })}))`);
    }
  }
  flush();
  return parts.join(' + ');
}

function asText(name: string, holes: CelHoles): string {
  const hole = holes.values[name] ?? fail(name);
  return hole.isNumber === true ? `string(${hole.expression})` : hole.expression;
}

function fail(name: string): never {
  throw new Error(`the hole ${name} has no CEL`);
}
