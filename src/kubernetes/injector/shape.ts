/** Shapes: Kubernetes objects with named holes. The sidecar is written once as such, and filled with values, CEL or Helm expressions. */

/** Where a value goes. */
export interface Hole<Name extends string = string> {
  readonly $value: Name;
}
/** Text with values in it. */
export interface Text<Name extends string = string> {
  readonly $text: readonly (string | Hole<Name>)[];
}
/** There only where the condition holds; as a list's item it stands for none or one. */
export interface When<Name extends string = string> {
  readonly $when: Name;
  readonly then: Shape;
}
/** One item for each entry of a list of entries. */
export interface Each<Name extends string = string> {
  readonly $each: Name;
  readonly of: Shape;
}
/** An object with holes. */
export type Shape = string | number | boolean | Hole | Text | When | Each | readonly Shape[] | ShapeMap;
/** A mapping with holes. */
export interface ShapeMap {
  readonly [key: string]: Shape;
}

/** What the holes of a shape are filled with. */
export interface Values {
  readonly [name: string]: string | number | boolean | undefined | readonly Values[];
}

export const value = <Name extends string>($value: Name): Hole<Name> => ({ $value });
export const text = (...$text: readonly (string | Hole)[]): Text => ({ $text });
export const when = ($when: string, then: Shape): When => ({ $when, then });
export const each = ($each: string, of: Shape): Each => ({ $each, of });

export const isHole = (shape: Shape): shape is Hole => typeof shape === 'object' && '$value' in shape;
export const isText = (shape: Shape): shape is Text => typeof shape === 'object' && '$text' in shape;
export const isWhen = (shape: Shape): shape is When => typeof shape === 'object' && '$when' in shape;
export const isEach = (shape: Shape): shape is Each => typeof shape === 'object' && '$each' in shape;
export const isList = (shape: Shape): shape is readonly Shape[] => Array.isArray(shape);

/** The shape with literal values; a list's entries shadow what is outside. */
export function fill(shape: Shape, values: Values): unknown {
  if (typeof shape !== 'object') return shape;
  if (isHole(shape)) return values[shape.$value];
  if (isText(shape)) return shape.$text.map((part) => (typeof part === 'string' ? part : String(values[part.$value]))).join('');
  if (isList(shape)) return shape.flatMap((item) => fillItem(item, values));
  return Object.fromEntries(
    Object.entries(shape as ShapeMap).flatMap(([key, inner]) => fillItem(inner, values).map((filled) => [key, filled])),
  );
}

/** None, one or several. */
function fillItem(shape: Shape, values: Values): unknown[] {
  if (isWhen(shape)) return isSet(values[shape.$when]) ? fillItem(shape.then, values) : [];
  if (!isEach(shape)) return [fill(shape, values)];
  const entries = values[shape.$each];
  return Array.isArray(entries) ? entries.flatMap((entry: Values) => fillItem(shape.of, { ...values, ...entry })) : [];
}

function isSet(found: Values[string]): boolean {
  return found !== undefined && found !== false;
}

/** Where a value stands alone in a shape: at the end of a text, if at all in one. */
export interface HolePlace {
  readonly path: readonly (string | number)[];
  /** What the text begins with. */
  readonly prefix: string;
}

/** The first place of a value that can be found without knowing what is filled in: not in or after repeated and conditional items. */
export function findHole(shape: Shape, name: string, path: HolePlace['path'] = []): HolePlace | undefined {
  if (typeof shape !== 'object' || isEach(shape)) return undefined;
  if (isHole(shape)) return shape.$value === name ? { path, prefix: '' } : undefined;
  if (isText(shape)) {
    const [last, ...before] = [...shape.$text].reverse();
    const isOnly = typeof last === 'object' && last.$value === name && before.every((part) => typeof part === 'string');
    return isOnly ? { path, prefix: before.reverse().join('') } : undefined;
  }
  if (isWhen(shape)) return findHole(shape.then, name, path);
  const items = isList(shape) ? [...fixedItems(shape).entries()] : Object.entries(shape as ShapeMap);
  for (const [key, inner] of items) {
    const found = findHole(inner, name, [...path, key]);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The items whose places in the list do not depend on values. */
function fixedItems(list: readonly Shape[]): readonly Shape[] {
  const end = list.findIndex((item) => typeof item === 'object' && (isWhen(item) || isEach(item)));
  return end === -1 ? list : list.slice(0, end);
}
