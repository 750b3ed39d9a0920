/** In place of the parts of schemes that the library does not have: signing, and JSON Web Tokens. */

function refuse(): never {
  throw new Error('the library of sidegate does not sign');
}

/** In place of sign/. */
export function compileSigner(): () => never {
  return refuse;
}
export { refuse as compileToken, refuse as signAnywhere, refuse as toHeaders };

/** In place of token.ts. */
export function compileTokenSigner(): () => never {
  return refuse;
}
