/** What a page remembers between visits (`kept`) and within a tab (`ofTab`); never needed to work. */

function memoryIn(storage) {
  const name = (key) => `lingua.${key}`;
  return {
    get(key, fallback = "") {
      try {
        return JSON.parse(storage().getItem(name(key))) ?? fallback;
      } catch {
        return fallback; // private windows have no storage
      }
    },
    set(key, value) {
      try {
        if (value === null) storage().removeItem(name(key));
        else storage().setItem(name(key), JSON.stringify(value));
      } catch {
        // Nothing is remembered, then.
      }
    },
  };
}

export const kept = memoryIn(() => localStorage);
export const ofTab = memoryIn(() => sessionStorage);
