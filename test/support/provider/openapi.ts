/** Checks responses against the API's own OpenAPI document, with ajv. */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import type { ApiAnswer, TestApi } from './api.ts';

const DOCUMENT = 'https://api.test/openapi.json';

interface Described {
  readonly content?: Readonly<Record<string, { readonly schema: object }>>;
  readonly headers?: Readonly<Record<string, object>>;
}

export interface OpenapiOperation {
  readonly operationId: string;
  readonly requestBody?: {
    readonly required: boolean;
    readonly content: { readonly 'application/json': { readonly schema: object } };
  };
  readonly parameters: readonly { readonly name: string; readonly in: string; readonly schema: object }[];
  readonly responses: Readonly<Record<string, Described>>;
}

export interface OpenapiDocument {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, OpenapiOperation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

/** A document whose responses can be checked. */
export class OpenapiChecker {
  readonly document: OpenapiDocument;
  readonly #ajv: Ajv2020;
  readonly #validators = new Map<string, ValidateFunction>();
  /** Operations and statuses that were checked. */
  readonly seen = new Set<string>();

  constructor(document: OpenapiDocument) {
    this.document = document;
    this.#ajv = new Ajv2020({ strict: false, allErrors: true, formats: { base64: true } });
    (addFormats as unknown as (ajv: Ajv2020) => void)(this.#ajv);
    this.#ajv.addSchema({ $id: DOCUMENT, ...document });
  }

  /** Returns what is wrong with a response; empty if nothing is. */
  check(method: string, path: string, { status, headers, text }: ApiAnswer): string[] {
    const found = this.find(method, path);
    if (found === undefined)
      return status === 404 || status === 405 || status === 400 ? [] : [`${status} for an unknown operation`];
    const [template, operation] = found;
    this.seen.add(`${operation.operationId} ${status}`);
    const described = operation.responses[status];
    if (described === undefined) return [`${operation.operationId}: status ${status} is not described`];
    const missing = Object.keys(described.headers ?? {}).filter((name) => headers[name.toLowerCase()] === undefined);
    const [type] = Object.keys(described.content ?? {});
    if (type === undefined) return text === '' ? [] : [`${operation.operationId}: ${status} has a body`];
    if (headers['content-type'] !== type) return [`${operation.operationId}: ${status} has type ${headers['content-type']}`];
    const pointer = ['paths', template, method.toLowerCase(), 'responses', String(status), 'content', type, 'schema'];
    const validate = this.#compile(pointer);
    const values = type === 'application/x-ndjson' ? text.trimEnd().split('\n') : [text];
    const errors = values.flatMap((value) => (validate(JSON.parse(value)) ? [] : [this.#ajv.errorsText(validate.errors)]));
    // Endpoints of the config have no ETag.
    const needed = missing.filter((name) => name !== 'ETag');
    return [...errors, ...needed.map((name) => `${operation.operationId}: ${status} has no ${name}`)];
  }

  find(method: string, path: string): readonly [string, OpenapiOperation] | undefined {
    const [plain = ''] = path.split('?');
    for (const [template, methods] of Object.entries(this.document.paths)) {
      const pattern = template.replaceAll(/[.+*?^$()|[\]\\]/g, '\\$&').replaceAll(/\{\w+\}/g, '[^/~]+');
      const operation = methods[method.toLowerCase()];
      if (operation !== undefined && new RegExp(`^${pattern}$`).test(plain)) return [template, operation];
    }
    return undefined;
  }

  #compile(pointer: readonly string[]): ValidateFunction {
    const text = pointer.map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/');
    const known = this.#validators.get(text) ?? this.#ajv.compile({ $ref: `${DOCUMENT}#/${text}` });
    this.#validators.set(text, known);
    return known;
  }
}

/** Reads the document of a running API. */
export async function readOpenapi(api: Pick<TestApi, 'request'>): Promise<OpenapiChecker> {
  const { json } = await api.request('GET', '/openapi.json');
  return new OpenapiChecker(json as OpenapiDocument);
}
