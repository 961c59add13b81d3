"""Thirty sentences each way of the kinds that are spoken, to be read by people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from training.translation.evaluate import Shipped

if TYPE_CHECKING:
    from pathlib import Path

ENGLISH: Final = (
    # Novels, as LibriVox reads them.
    (
        "He was not an ill-disposed young man, unless to be rather cold hearted and rather selfish "
        "is to be ill-disposed."
    ),
    (
        "And Mr. John Dashwood had then leisure to consider how much there might be prudently in "
        "his power to do for them."
    ),
    (
        "It is a truth universally acknowledged, that a single man in possession of a good fortune "
        "must be in want of a wife."
    ),
    (
        "The old house stood at the end of a long avenue of trees, and nobody had lived in it for "
        "years."
    ),
    "She could not speak, but her eyes were full of tears.",
    "He might even have been made amiable himself.",
    # Lectures.
    "Today we are going to talk about how the brain learns a second language.",
    (
        "If you look at the graph, you can see that the temperature rises slowly at first and then "
        "very quickly."
    ),
    "The main idea is that small changes in the climate can have large effects on agriculture.",
    "Photosynthesis converts light into chemical energy that the plant can store.",
    "In the next lecture we will discuss the causes of the First World War.",
    "Are there any questions about what we have seen so far?",
    # Dialogue.
    "Good morning, how are you today?",
    "Could you tell me where the nearest hospital is, please?",
    "I'm sorry, I didn't catch your name.",
    "We should have left earlier, but the kids weren't ready.",
    "What time does the meeting start tomorrow?",
    "I don't think that's a good idea, but let's ask your sister.",
    "Please send me the report before the meeting tomorrow.",
    "Turn left at the traffic lights and keep going straight until you see the church.",
    # Numbers.
    "The flight leaves at 7:45 from gate 23.",
    "My phone number is 555 0184.",
    "In 1987 the company had 3,200 employees in 14 countries.",
    "That will be 12.50 euros.",
    "Your appointment is on March 3rd at half past ten.",
    # Names.
    "Dr. Okonkwo and Ms. Lindqvist will arrive in Reykjavik on Thursday.",
    "Have you met my colleague Priya from Bangalore?",
    "Visit https://www.example.org/help for more information.",
    "Microsoft and Siemens signed an agreement in Munich.",
    "Willoughby asked Marianne whether she had seen Colonel Brandon.",
)
SPANISH: Final = (
    "En un lugar de la Mancha, de cuyo nombre no quiero acordarme, vivía un hidalgo.",
    (
        "La vieja casa estaba al final de una larga avenida de árboles y nadie había vivido en "
        "ella desde hacía años."
    ),
    "No podía hablar, pero tenía los ojos llenos de lágrimas.",
    "Aquella noche el viento soplaba con tanta fuerza que nadie pudo dormir.",
    "El anciano miró el mar durante mucho tiempo antes de contestar.",
    (
        "Muchos años después, el coronel recordaría aquella tarde en que su padre lo llevó a "
        "conocer el hielo."
    ),
    "Hoy vamos a hablar de cómo el cerebro aprende un segundo idioma.",
    (
        "Si miran el gráfico, pueden ver que la temperatura sube despacio al principio y luego muy "
        "rápido."
    ),
    (
        "La idea principal es que pequeños cambios en el clima pueden tener grandes efectos en la "
        "agricultura."
    ),
    "La fotosíntesis convierte la luz en energía química que la planta puede almacenar.",
    "En la próxima clase discutiremos las causas de la Primera Guerra Mundial.",
    "¿Hay alguna pregunta sobre lo que hemos visto hasta ahora?",
    "Buenos días, ¿cómo está usted hoy?",
    "¿Me podría decir dónde está el hospital más cercano, por favor?",
    "Perdón, no entendí su nombre.",
    "Deberíamos haber salido antes, pero los niños no estaban listos.",
    "¿A qué hora empieza la reunión mañana?",
    "No creo que sea una buena idea, pero preguntémosle a tu hermana.",
    "Por favor, envíeme el informe antes de la reunión de mañana.",
    "Gire a la izquierda en el semáforo y siga todo recto hasta que vea la iglesia.",
    "El vuelo sale a las 7:45 de la puerta 23.",
    "Mi número de teléfono es 555 0184.",
    "En 1987 la empresa tenía 3.200 empleados en 14 países.",
    "Son 12,50 euros.",
    "Su cita es el 3 de marzo a las diez y media.",
    "El doctor Okonkwo y la señora Lindqvist llegarán a Reikiavik el jueves.",
    "¿Conoces a mi compañera Priya, de Bangalore?",
    "Visite https://www.example.org/help para más información.",
    "Microsoft y Siemens firmaron un acuerdo en Múnich.",
    "Willoughby le preguntó a Marianne si había visto al coronel Brandon.",
)


def write(out: Path) -> None:
    """Write what the models in a folder make of them, nothing left out."""
    lines = ["# Samples", "", "Not chosen, not corrected. Beam 2, one sentence at a time.", ""]
    for direction, texts in (("en-es", ENGLISH), ("es-en", SPANISH)):
        model = Shipped(out / direction)
        lines += [f"## {direction}", ""]
        for text in texts:
            lines += [f"- {text}", f"  - {model.translate([text])[0]}"]
        lines.append("")
    (out / "SAMPLES.md").write_text("\n".join(lines), "utf-8")
